"""Faults in configs, messages, exit statuses and reports."""

from __future__ import annotations

from .mutant import Mutant

_TOGETHER = "cli/test_together.py"
_YAML = "configs/test_yaml.py"
_ERRORS = "configs/test_errors.py"
_OVERRIDES = "configs/test_overrides.py"
_MAIN = "cli/test_main.py"
_MISTAKES = "cli/test_mistakes.py"

INTERFACE = (
    Mutant(
        "configs: lines are counted from 0",
        "configs/load.py",
        "Place.in_file(self.label, mark.line + 1, mark.column + 1)",
        "Place.in_file(self.label, mark.line, mark.column + 1)",
        (f"{_ERRORS}::test_all_errors_at_once_in_the_order_of_the_file",),
    ),
    Mutant(
        "configs: columns are counted from 0",
        "configs/load.py",
        "Place.in_file(self.label, mark.line + 1, mark.column + 1)",
        "Place.in_file(self.label, mark.line + 1, mark.column)",
        (f"{_ERRORS}::test_all_errors_at_once_in_the_order_of_the_file",),
    ),
    Mutant(
        "configs: a quoted number is a number",
        "configs/load.py",
        "value = resolve(event.value) if event.style is None else event.value",
        "value = resolve(event.value)",
        (f"{_YAML}::test_quoted_numbers_are_text_and_plain_words_need_no_quotes",),
    ),
    Mutant(
        "configs: 'no' is false",
        "configs/scalars.py",
        '["false", "False", "FALSE"]',
        '["false", "False", "FALSE", "no"]',
        (f"{_YAML}::test_what_stays_a_word",),
    ),
    Mutant(
        "configs: nested without a limit",
        "configs/load.py",
        "DEEPEST = 50",
        "DEEPEST = 10**9",
        (f"{_YAML}::test_message",),
    ),
    Mutant(
        "configs: the same key twice",
        "configs/load.py",
        "            if key.text in mapping:\n",
        "            if False:\n",
        (f"{_YAML}::test_message",),
    ),
    Mutant(
        "configs: unknown keys are ignored",
        "configs/schema/base.py",
        'extra="forbid"',
        'extra="ignore"',
        (f"{_ERRORS}::test_message",),
    ),
    Mutant(
        "configs: NaN is a number",
        "configs/schema/base.py",
        "allow_inf_nan=False",
        "allow_inf_nan=True",
        (f"{_ERRORS}::test_message",),
    ),
    Mutant(
        "configs: text is converted to numbers",
        "configs/schema/base.py",
        "        strict=True,\n",
        "        strict=False,\n",
        (f"{_ERRORS}::test_message",),
    ),
    Mutant(
        "configs: a mistake without the path of its key",
        "configs/document.py",
        "parts = (str(self.place), cut(self.path, _LONGEST), cut(",
        "parts = (str(self.place), cut(",
        (f"{_ERRORS}::test_all_errors_at_once_in_the_order_of_the_file",),
    ),
    Mutant(
        "configs: any number of mistakes is listed",
        "configs/validate.py",
        "_MOST_LINES, _MOST_CHARACTERS = 50, 10_000",
        "_MOST_LINES, _MOST_CHARACTERS = 10**9, 10**9",
        (f"{_ERRORS}::test_very_many_errors_are_cut",),
    ),
    Mutant(
        "configs: the packaged file comes before the one that is here",
        "configs/find.py",
        "    if path.exists():\n",
        "    if path.exists() and str(reference) not in packaged_configs():\n",
        ("configs/test_packaged.py::test_a_file_here_comes_before_the_packaged_one",),
    ),
    Mutant(
        "did you mean: never",
        "configs/suggest.py",
        "cutoff=0.6",
        "cutoff=1.0",
        (f"{_ERRORS}::test_message",),
    ),
    Mutant(
        "did you mean: words of other tools are unknown",
        "configs/suggest.py",
        "for choice in (plain, *ours):",
        "for choice in (plain,):",
        (f"{_ERRORS}::test_message",),
    ),
    Mutant(
        "overrides: the first one wins",
        "configs/load.py",
        "    for place, assignment in numbered:\n        if not is_of_block(assignment):\n",
        "    for place, assignment in reversed(numbered):\n"
        "        if not is_of_block(assignment):\n",
        (f"{_OVERRIDES}::test_later_ones_win_and_build_on_earlier_ones",),
    ),
    Mutant(
        "overrides: the key that excludes another leaves it there",
        "configs/overrides.py",
        "                del mapping[other]\n",
        "                pass\n",
        (f"{_OVERRIDES}::test_sets",),
    ),
    Mutant(
        "overrides: a layer's number counts from 1",
        "configs/overrides.py",
        "    if index is not None and index < len(items):\n        return index\n",
        "    if index is not None and index < len(items):\n        return index - 1\n",
        (f"{_OVERRIDES}::test_sets",),
    ),
    Mutant(
        "commands: an error ends with 0",
        "cli/main.py",
        "        return _complain(text, 1)\n",
        "        return _complain(text, 0)\n",
        (f"{_MAIN}::test_errors_become_one_message",),
    ),
    Mutant(
        "commands: wrong usage ends with 1",
        "cli/main.py",
        "return _complain(usage.explained(error, given), 2)",
        "return _complain(usage.explained(error, given), 1)",
        (f"{_MAIN}::test_wrong_usage_ends_with_2",),
    ),
    Mutant(
        "commands: memory that runs out is a traceback",
        "common/errors.py",
        "    if isinstance(error, MemoryError):\n",
        "    if isinstance(error, FloatingPointError):\n",
        (f"{_MAIN}::test_memory_that_runs_out_is_said",),
    ),
    Mutant(
        "commands: a missed goal ends with 0",
        "cli/train.py",
        "_GOAL_MISSED = 3",
        "_GOAL_MISSED = 0",
        ("cli/test_perceptron.py::test_xor_does_not_and_says_so",),
    ),
    Mutant(
        "commands: one bad picture does not show in the status",
        "cli/predict.py",
        "            status = _UNREADABLE\n",
        "            pass\n",
        ("cli/test_predict.py::test_a_bad_picture_does_not_stop_the_rest",),
    ),
    Mutant(
        "messages: damage does not name what else there is",
        "training/records/store.py",
        "        advice = listed if others else",
        "        advice = listed if not others else",
        (
            "training/records/store/test_choice.py::"
            "test_a_damaged_file_that_was_named_gives_way_to_what_is_there",
        ),
    ),
    Mutant(
        "messages: a damaged checkpoint is passed over in silence",
        "training/records/store.py",
        "        for each in faults:\n            notice(",
        "        for each in ():\n            notice(",
        (
            "training/records/store/test_choice.py::"
            "test_a_damaged_newest_is_told_and_the_one_before_taken",
        ),
    ),
    Mutant(
        "runs: a bad line ends the list",
        "training/records/run_log.py",
        "            with contextlib.suppress(ValueError):\n",
        "            with contextlib.suppress():\n",
        ("reports/test_runs_report.py::test_a_bad_line_says_nothing_of_its_run_or_of_others",),
    ),
    Mutant(
        "runs: the time of earlier processes is forgotten",
        "reports/runs_report.py",
        "            seconds, spent, ended = seconds + spent, 0.0, None\n",
        "            seconds, spent, ended = spent, 0.0, None\n",
        ("reports/test_runs_report.py::test_the_time_of_every_process_counts",),
    ),
    Mutant(
        "predict: columns of CSV and header in different orders",
        "training/predict.py",
        'COLUMNS = ("path", "label", "index", "probability"',
        'COLUMNS = ("path", "index", "label", "probability"',
        ("cli/test_predict.py::test_csv",),
    ),
    Mutant(
        "predict: the least likely comes first",
        "training/predict.py",
        'np.argsort(-probabilities, kind="stable")',
        'np.argsort(probabilities, kind="stable")',
        ("training/records/test_trained.py::test_prediction_is_what_the_network_says",),
    ),
    Mutant(
        "python: a batch keeps the order of a larger one before",
        "training/forward.py",
        "        if count != self._count:\n",
        "        if self._count == 0:\n",
        ("api/test_classifier.py::test_sizes_in_any_order_do_not_mix",),
    ),
    Mutant(
        "python: the axes of colour pictures are not turned",
        "api/inputs.py",
        "return array.transpose(0, 3, 1, 2)",
        "return array.reshape(-1, *shape)",
        ("api/test_inputs.py::test_axes_in_either_order",),
    ),
    Mutant(
        "python: the handler of Ctrl-C is taken in any thread",
        "api/fitting.py",
        "    if not main or signal.getsignal",
        "    if signal.getsignal",
        ("api/test_script.py::test_a_notebook_in_one_process",),
    ),
    Mutant(
        "messages: layers are counted from 0",
        "configs/layer_places.py",
        "str(int(rest.pop(0)) + 1)",
        "rest.pop(0)",
        ("configs/test_layer_places.py::test_paths_in_messages",),
    ),
    Mutant(
        "curves: the last, short window bends the curve",
        "reports/plots.py",
        "    if not 0 < rest < count:\n",
        "    if not 0 < rest < 0:\n",
        ("reports/test_plots.py::test_a_short_last_window_does_not_bend_the_curve",),
    ),
    Mutant(
        "curves: drawn after every validation, whatever that takes",
        "reports/live_curves.py",
        "self._cost > SHARE * (began - self._since)",
        "False",
        ("reports/test_live_curves.py::test_drawing_takes_no_more_than_its_share",),
    ),
    Mutant(
        "predict: views are asked for and not looked at",
        "training/forward.py",
        "self._views = TEST_TIME[tta]",
        'self._views = TEST_TIME["none"]',
        ("api/test_classifier.py::test_views_of_a_picture_are_averaged_as_an_evaluation_does",),
    ),
    Mutant(
        "eval: rows and columns of the confusion matrix swapped",
        "training/evaluate.py",
        "np.bincount(labels * self._classes + answers",
        "np.bincount(labels + answers * self._classes",
        ("training/test_evaluation.py::test_a_tally_counts_as_one_does_by_hand",),
    ),
    Mutant(
        "seeds: a run that has failed is trained again beside the others",
        "many/side_by_side.py",
        "_take(claims, members, without)",
        "_take(claims, members, ())",
        (f"{_TOGETHER}::test_a_run_that_has_failed_before_is_not_trained_again_beside_the_others",),
    ),
    Mutant(
        "seeds: together however short they are",
        "many/together.py",
        "remaining < WORTH[layers() <= SMALL]",
        "remaining < 0",
        (f"{_TOGETHER}::test_how_many_runs_are_worth_to_be_trained_together",),
    ),
    Mutant(
        "sweep: a worker that had nothing to save when it was ended is an error",
        "many/workers.py",
        "except Interrupted:\n",
        "except KeyboardInterrupt:\n",
        (
            "cli/test_workers.py::"
            "test_workers_that_are_ended_before_they_have_saved_anything_are_no_error",
        ),
    ),
    Mutant(
        "a dataclass that may change has a hash",
        "common/records.py",
        "cls.__hash__ = _hash(fields) if frozen else None",
        "cls.__hash__ = _hash(fields)",
        ("common/test_records.py::test_one_that_may_change",),
    ),
    Mutant(
        "a field that nobody gives is taken",
        "common/records.py",
        "    taken = [each for each in fields if each.init]\n",
        "    taken = fields\n",
        ("common/test_records.py::test_one_that_may_change",),
    ),
    Mutant(
        "frozen and changeable dataclasses derive from each other",
        "common/records.py",
        "known.frozen != frozen",
        "False",
        ("common/test_records.py::test_frozen_and_changeable_ones_do_not_mix",),
    ),
)
