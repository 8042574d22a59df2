"""Faults in what loads plugins, and in the record of those that may run."""

from __future__ import annotations

from .mutant import Mutant

_TRUST = "plugins/test_trust.py"
_LOADING = "plugins/test_loading.py"
_RUNS = "plugins/test_runs.py"

PLUGINS = (
    Mutant(
        "plugins: a plugin that a config names runs unasked",
        "cli/plugins.py",
        "    if not loaded and not is_trusted(code):\n",
        "    if False:\n",
        (f"{_TRUST}::test_a_config_in_a_script_runs_no_plugin_that_is_not_named",),
    ),
    Mutant(
        "plugins: what is piped in is an answer",
        "cli/plugins.py",
        "    if not (sys.stdin.isatty() and sys.stderr.isatty()):\n",
        "    if False:\n",
        (f"{_TRUST}::test_a_config_in_a_script_runs_no_plugin_that_is_not_named",),
    ),
    Mutant(
        "plugins: any answer that begins with y means yes",
        "cli/console.py",
        '.strip().lower() in ("y", "yes")',
        '.strip().lower().startswith("y")',
        (f"{_TRUST}::test_any_answer_but_yes_runs_nothing",),
    ),
    Mutant(
        "plugins: those of a run's folder may run",
        "cli/plugins.py",
        "    if any(os.path.exists(path.parent / name) for name in _RUN_FILES):\n",
        "    if False:\n",
        (f"{_TRUST}::test_a_run_and_its_checkpoints_run_nothing",),
    ),
    Mutant(
        "plugins: consent is to a path, whatever its bytes",
        "plugins/trust.py",
        "        return _line(code) in _lines()\n",
        "        return any(line.endswith(_path(code)) for line in _lines())\n",
        (f"{_TRUST}::test_yes_is_asked_for_once_and_only_for_this_file",),
    ),
    Mutant(
        "plugins: consent is to bytes, wherever they lie",
        "plugins/trust.py",
        "        return _line(code) in _lines()\n",
        "        return any(line.startswith(code.sha256) for line in _lines())\n",
        (f"{_TRUST}::test_yes_is_asked_for_once_and_only_for_this_file",),
    ),
    Mutant(
        "plugins: a record that others may write is believed",
        "plugins/trust.py",
        "if found.st_uid != os.geteuid() or found.st_mode & _OTHERS:",
        "if found.st_uid != os.geteuid():",
        (f"{_TRUST}::test_a_record_that_others_could_have_written_is_not_used",),
    ),
    Mutant(
        "plugins: others may look into the record's folder",
        "plugins/trust.py",
        "folder.mkdir(mode=0o700)",
        "folder.mkdir()",
        (f"{_TRUST}::test_a_record_is_private_and_has_a_line_for_a_file",),
    ),
    Mutant(
        "plugins: a file's name can be two lines of the record",
        "plugins/trust.py",
        "    return ascii(os.fspath(code.path))\n",
        "    return os.fspath(code.path)\n",
        (f"{_TRUST}::test_a_record_is_private_and_has_a_line_for_a_file",),
    ),
    Mutant(
        "plugins: a record that cannot be read is replaced",
        "plugins/trust.py",
        "except (FileNotFoundError, NotADirectoryError, UnicodeDecodeError):",
        "except (OSError, UnicodeDecodeError):",
        (f"{_TRUST}::test_a_record_that_cannot_be_read_allows_nothing_and_is_not_replaced",),
    ),
    Mutant(
        "plugins: a hash in the config may be wrong",
        "plugins/loading.py",
        "    if sha256 not in (None, code.sha256):\n",
        "    if False:\n",
        (f"{_TRUST}::test_a_hash_in_the_config_must_be_right",),
    ),
    Mutant(
        "plugins: a changed file under a known name is not run again",
        "plugins/loading.py",
        "    if known is None or (known.path, known.sha256) != (plugin.path, plugin.sha256):\n",
        "    if known is None:\n",
        (f"{_LOADING}::test_the_same_file_runs_once_and_a_changed_one_again",),
    ),
    Mutant(
        "plugins: a kind of ours can be replaced",
        "plugins/loading.py",
        "    if other is not None and _module_of(other) != made.__module__:\n",
        "    if False:\n",
        (f"{_LOADING}::test_what_is_wrong_is_said_in_a_line",),
    ),
    Mutant(
        "plugins: an error of a plugin has no place",
        "plugins/loading.py",
        "            found = frame.f_code.co_filename, line, frame.f_code.co_name\n",
        "            pass\n",
        (f"{_RUNS}::test_a_fault_of_the_plugin_is_a_line_with_its_place",),
    ),
)
