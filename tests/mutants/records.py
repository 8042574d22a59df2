"""Faults in files, locks, checkpoints, run folders and logs."""

from __future__ import annotations

from .mutant import Mutant

_FILES = "common/test_files.py"
_LOCKS = "common/test_locks.py"
_CHECKPOINT = "training/records/test_checkpoint.py"
_METADATA = "training/records/test_metadata.py"
_COMMIT = "training/records/store/test_commit.py"
_CHOICE = "training/records/store/test_choice.py"
_LOG = "training/records/test_run_log.py"
_RUNS = "training/records/test_runs.py"
_STORE = "training/records/store.py"
_READER = "training/records/checkpoint.py"
_TRIALS = "many/test_sampling.py"
_SAVER = "training/records/test_saver.py"
_LOSS = "faults/test_power_loss.py::test_no_saved_checkpoint_is_lost"

RECORDS = (
    Mutant(
        "power loss: the data of a file is not synced before it is renamed",
        "common/files.py",
        "                    os.fsync(file.fileno())\n",
        "                    pass\n",
        (f"{_LOSS}[train-strict-0]",),
    ),
    Mutant(
        "power loss: a folder is not synced behind a rename",
        "common/files.py",
        "        os.fsync(descriptor)\n",
        "        pass\n",
        (f"{_LOSS}[train-journalling-0]",),
    ),
    Mutant(
        "saver: every line of the log waits for a checkpoint that is being written",
        "training/records/saver.py",
        "if self._behind and chunk_is_over(self._begun):",
        "if self._behind:",
        (f"{_SAVER}::test_training_is_one_chunk_ahead_of_a_slow_disk_at_most",),
    ),
    Mutant(
        "saver: a checkpoint that takes long is never waited for before the next",
        "training/records/saver.py",
        "if self._behind and chunk_is_over(self._begun):",
        "if False:",
        (f"{_SAVER}::test_training_is_one_chunk_ahead_of_a_slow_disk_at_most",),
    ),
    Mutant(
        "files: a file is not synchronised before its name changes",
        "common/files.py",
        "            os.fsync(file.fileno())\n",
        "",
        (f"{_FILES}::test_data_reach_the_disk_before_the_name_changes",),
    ),
    Mutant(
        "files: the folder is not synchronised after the name has changed",
        "common/files.py",
        "        if durable:\n            sync_folder(os.path.dirname(target) or os.curdir)\n",
        "",
        (f"{_FILES}::test_data_reach_the_disk_before_the_name_changes",),
    ),
    Mutant(
        "files: errors of a folder's fsync are ignored",
        "common/files.py",
        "        if error.errno not in _NO_FOLDER_SYNC:\n            raise\n",
        "        pass\n",
        (f"{_FILES}::test_an_error_of_a_folder_s_fsync_is_one_of_the_write",),
    ),
    Mutant(
        "files: a new folder is not synchronised in its parent",
        "common/files.py",
        "            ) from None\n    sync_folder(folder.parent)\n",
        "            ) from None\n",
        (f"{_FILES}::test_folders_are_made_durable_from_the_top",),
    ),
    Mutant(
        "files: written in place instead of renamed",
        "common/files.py",
        "    temporary = temporary_name(target)\n",
        "    temporary = target\n    target.unlink(missing_ok=True)\n",
        (f"{_FILES}::test_a_write_that_fails_half_way_leaves_the_old_file",),
    ),
    Mutant(
        "files: temporary files without O_EXCL",
        "common/files.py",
        "os.O_WRONLY | os.O_CREAT | os.O_EXCL",
        "os.O_WRONLY | os.O_CREAT",
        (f"{_FILES}::test_a_link_in_the_place_of_the_temporary_file_is_not_written_through",),
    ),
    Mutant(
        "files: temporary files of failed writes stay",
        "common/files.py",
        "            os.unlink(temporary)\n",
        "            pass\n",
        (f"{_FILES}::test_a_write_that_fails_half_way_leaves_the_old_file",),
    ),
    Mutant(
        "files: links are followed",
        "common/files.py",
        "os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK",
        "os.O_CLOEXEC | os.O_NONBLOCK",
        (f"{_FILES}::test_only_a_regular_file_is_opened",),
    ),
    Mutant(
        "files: a pipe is waited for",
        "common/files.py",
        "os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK",
        "os.O_NOFOLLOW | os.O_CLOEXEC",
        (f"{_FILES}::test_a_pipe_is_not_waited_for",),
    ),
    Mutant(
        "files: devices and pipes are read",
        "common/files.py",
        "if not stat.S_ISREG(os.fstat(descriptor).st_mode):",
        "if False:",
        (f"{_FILES}::test_only_a_regular_file_is_opened",),
    ),
    Mutant(
        "files: the size limit is not kept",
        "common/files.py",
        "    if len(content) > most:\n",
        "    if False:\n",
        (f"{_FILES}::test_only_a_regular_file_is_opened",),
    ),
    Mutant(
        "files: a short write is taken for a whole one",
        "common/files.py",
        "            left = left[os.write(descriptor, left) :]\n",
        "            os.write(descriptor, left)\n            left = left[:0]\n",
        (f"{_FILES}::test_a_line_is_appended_whole_or_not_at_all",),
    ),
    Mutant(
        "files: a line that fails half way stays",
        "common/files.py",
        "            os.ftruncate(descriptor, before)\n",
        "            pass\n",
        (f"{_FILES}::test_a_line_is_appended_whole_or_not_at_all",),
    ),
    Mutant(
        "files: other programs' temporary files are deleted too",
        "common/files.py",
        r'r"\.(?P<target>.+)\.(?P<process>\d+)\.[0-9a-f]{8}\.tmp"',
        r'r"(?P<target>.*?)(?P<process>\d*)\.tmp"',
        (f"{_FILES}::test_what_killed_writers_left_is_deleted_and_nothing_else",),
    ),
    Mutant(
        "lock: shared instead of exclusive",
        "common/locks.py",
        "fcntl.LOCK_EX",
        "fcntl.LOCK_SH",
        (f"{_LOCKS}::test_a_lock_excludes_a_second_one_until_released",),
    ),
    Mutant(
        "lock: empties a file that is none",
        "common/locks.py",
        "            if not _TORN.fullmatch(text):\n",
        "            if False:\n",
        (f"{_LOCKS}::test_other_content_than_a_lock_s_stays",),
    ),
    Mutant(
        "lock: the text in the file decides",
        "common/locks.py",
        "    try:\n        for left in range(tries, 0, -1):\n",
        "    try:\n        if os.pread(descriptor, 9, 0):\n"
        "            raise BlockingIOError(11, '')\n"
        "        for left in range(tries, 0, -1):\n",
        (f"{_LOCKS}::test_the_text_in_a_lock_file_decides_nothing",),
    ),
    Mutant(
        "run folders: not locked",
        "training/records/runs.py",
        "        return lock(path / LOCK)\n    except LockedError as error:\n",
        "        return None\n    except LockedError as error:\n",
        (f"{_RUNS}::test_a_held_run_is_refused",),
    ),
    Mutant(
        "run folders: checkpoints may be another run's",
        "training/records/runs.py",
        "        if run.checkpoints.is_symlink():\n",
        "        if False:\n",
        (f"{_RUNS}::test_checkpoints_that_are_another_run_s_are_refused",),
    ),
    Mutant(
        "run folders: two processes get the same",
        "training/records/runs.py",
        "    except (FileExistsError, LockedError):\n        return None\n"
        "    return _if_bare(run)\n",
        "    except LockedError:\n        return None\n    except FileExistsError:\n"
        "        run = Run(path, None)\n    return run\n",
        (f"{_RUNS}::test_a_folder_that_another_process_has_just_made_is_stepped_over",),
    ),
    Mutant(
        "checkpoint: the manifest is written before the tensors",
        _STORE,
        "    atomic_write(path, pieces)\n"
        "    atomic_write(manifest, manifest_text(state.step, path, pieces))\n",
        "    atomic_write(manifest, manifest_text(state.step, path, pieces))\n"
        "    atomic_write(path, pieces)\n",
        (f"{_COMMIT}::test_the_manifest_comes_last_and_goes_first",),
    ),
    Mutant(
        "checkpoint: the tensors are deleted before the manifest",
        _STORE,
        'for kind in ("json", "safetensors")}',
        'for kind in ("safetensors", "json")}',
        (f"{_COMMIT}::test_the_manifest_comes_last_and_goes_first",),
    ),
    Mutant(
        "checkpoint: older ones are deleted before the new one is written",
        _STORE,
        "    atomic_write(path, pieces)\n",
        "    _prune(folder, {state.step})\n    atomic_write(path, pieces)\n",
        (f"{_COMMIT}::test_the_last_checkpoint_survives_a_failure_of_any_call",),
    ),
    Mutant(
        "checkpoint: the oldest are kept instead of the newest",
        _STORE,
        "*earlier[:keep]",
        "*earlier[-keep:]",
        (f"{_CHOICE}::test_the_last_k_and_the_best_are_kept",),
    ),
    Mutant(
        "checkpoint: the best one is deleted",
        _STORE,
        "keep, {*best, *(s for",
        "keep, {*(s for",
        (f"{_CHOICE}::test_the_last_k_and_the_best_are_kept",),
    ),
    Mutant(
        "checkpoint: a file without a manifest counts",
        _STORE,
        "        if step not in committed:\n",
        "        if False:\n",
        (f"{_CHOICE}::test_without_its_manifest_a_file_is_no_checkpoint",),
    ),
    Mutant(
        "checkpoint: the same step is replaced without announcing it",
        _STORE,
        "        _announce(Path(manifest), Path(path), pieces, state.step)\n",
        "        pass\n",
        (f"{_COMMIT}::test_the_same_step_is_replaced_without_a_moment_in_which_none_counts",),
    ),
    Mutant(
        "checkpoint: its own digest is not checked",
        _READER,
        "    if data[at : at + 64] != _own_digest(memoryview(data), at).encode():\n",
        "    if False:\n",
        (f"{_CHECKPOINT}::test_a_flipped_bit_anywhere_is_found",),
    ),
    Mutant(
        "checkpoint: the manifest's digest is not checked",
        _READER,
        "    if found not in known:\n",
        "    if False:\n",
        (f"{_CHECKPOINT}::test_a_manifest_of_another_file_is_obeyed",),
    ),
    Mutant(
        "checkpoint: arrays of any type are read",
        _READER,
        "        if array.dtype != np.float32:\n            raise CheckpointError",
        "        if False:\n            raise CheckpointError",
        (f"{_METADATA}::test_arrays_of_another_type_are_refused",),
    ),
    Mutant(
        "checkpoint: numbers that are not finite are read",
        _READER,
        "        if not np.isfinite(array).all():\n",
        "        if False:\n",
        (f"{_METADATA}::test_values_that_are_not_finite",),
    ),
    Mutant(
        "checkpoint: a header of any length is believed",
        _READER,
        "        if header > min(size, _LONGEST_HEADER):\n",
        "        if False:\n",
        (f"{_METADATA}::test_a_header_longer_than_the_file",),
    ),
    Mutant(
        "checkpoint: the machine's memory is no limit",
        _READER,
        "        if size > main_memory():\n",
        "        if False:\n",
        (f"{_METADATA}::test_a_file_larger_than_the_memory_is_not_read",),
    ),
    Mutant(
        "checkpoint: an array in another memory order is written as it lies",
        _READER,
        "{n: np.ascontiguousarray(a) for n, a in arrays.items()}",
        "dict(arrays)",
        (f"{_CHECKPOINT}::test_round_trip",),
    ),
    Mutant(
        "checkpoint: a manifest of any size is read",
        _READER,
        "_LONGEST_MANIFEST, _LONGEST_REASON = 1 << 26, 1 << 16, 200",
        "_LONGEST_MANIFEST, _LONGEST_REASON = 1 << 26, 1 << 40, 1 << 40",
        (f"{_METADATA}::test_a_manifest_larger_than_any_is_not_read",),
    ),
    Mutant(
        "typed JSON: text is converted to numbers",
        "common/typed_json.py",
        "strict=True",
        "strict=False",
        (f"{_METADATA}::test_nothing_is_converted",),
    ),
    Mutant(
        "typed JSON: reasons as long as what is wrong",
        "common/typed_json.py",
        "_LONGEST_REASON = 200",
        "_LONGEST_REASON = 10**9",
        ("common/test_typed_json.py::test_a_reason_is_short",),
    ),
    Mutant(
        "logs: a torn last line is kept",
        "training/records/run_log.py",
        'line.endswith(b"\\n") and wanted(line)',
        "wanted(line)",
        (f"{_LOG}::test_a_line_without_an_end_does_not_survive",),
    ),
    Mutant(
        "logs: a row of numbers alone is no reason to doubt it",
        "training/records/run_log.py",
        '        if len(values) != 3 or split not in ("train", "validation"):\n'
        "            raise ValueError(line)\n",
        "",
        (f"{_LOG}::test_a_damaged_row_does_not_survive",),
    ),
    Mutant(
        "logs: NaN in JSON",
        "training/records/run_log.py",
        "isinstance(value, float) and not math.isfinite(value)",
        "False",
        (f"{_LOG}::test_both_files",),
    ),
    Mutant(
        "logs: columns of the CSV in another order than its header",
        "training/records/run_log.py",
        'values = {"loss": metrics.loss, "accuracy": metrics.accuracy, "learning_rate": rate}',
        'values = {"accuracy": metrics.accuracy, "loss": metrics.loss, "learning_rate": rate}',
        (f"{_LOG}::test_both_files",),
    ),
    Mutant(
        "logs: a resume keeps what is written again",
        "training/records/run_log.py",
        "return int(at) <= last.get(split, step)",
        "return int(at) <= step",
        (f"{_LOG}::test_cut",),
    ),
    Mutant(
        "logs: not synchronised before a checkpoint",
        "training/records/run_log.py",
        "            os.fsync(descriptor)\n",
        "            pass\n",
        (f"{_LOG}::test_both_files_are_synchronised",),
    ),
    Mutant(
        "sweeps: a trial that has ended may end again, otherwise",
        "many/journal.py",
        "if begun.state is None and line.state is not None:",
        "if line.state is not None:",
        (f"{_TRIALS}::test_a_journal_with_torn_and_foreign_lines",),
    ),
    Mutant(
        "sweeps: trials that are under way are not looked at",
        "many/sampling.py",
        "for params in under_way:",
        "for params in ():",
        (f"{_TRIALS}::test_trials_under_way_change_what_is_drawn_next",),
    ),
    Mutant(
        "sweeps: a trial that crashes is tried for ever",
        "many/workers.py",
        "if deaths < most:",
        "if deaths < 4 * most:",
        ("cli/test_workers.py::test_a_trial_that_crashes_again_and_again_is_given_up",),
    ),
    Mutant(
        "sweeps: every process gets every trial",
        "many/journal.py",
        "            return lock(self._lock_of(trial), keep=False)",
        "            return Lock(os.open(os.devnull, os.O_RDWR), self._lock_of(trial), keep=False)",
        ("cli/test_machines.py::test_two_machines_share_a_sweep[1]",),
    ),
    Mutant(
        "sweeps: nobody asks whether another process has the trial, too",
        "many/sweeping.py",
        "                    self.journal.check_own(trial, held)\n",
        "",
        (f"{_TRIALS}::test_a_trial_that_two_processes_have_is_an_error",),
    ),
)
