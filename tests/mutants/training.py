"""Faults in optimizers, schedules, and what a training does and saves."""

from __future__ import annotations

from .mutant import Mutant

_OPTIMIZER = "optimizers/test_optimizer.py"
_SGD = "optimizers/test_sgd.py::test_update"
_SCHEDULES = "optimizers/test_schedules.py"
_UPDATES = "backends/reference/updates.py"
_SAME_BITS = "training/records/resume/test_same_bits.py"
_PHASES = "training/test_phases.py"
_PLAN = "training/test_plan.py"

TRAINING = (
    Mutant(
        "SGD: momentum adds to itself",
        _UPDATES,
        "    v = op.momentum * v + g\n    return p - lr * (g + op.momentum * v if",
        "    v = v + g\n    return p - lr * (g + op.momentum * v if",
        (_SGD,),
    ),
    Mutant(
        "SGD: Nesterov with the old velocity",
        _UPDATES,
        "    v = op.momentum * v + g\n    return p - lr * (g + op.momentum * v if",
        "    old, v = v, op.momentum * v + g\n    return p - lr * (g + op.momentum * old if",
        (_SGD,),
    ),
    Mutant(
        "SGD: weight decay with the wrong sign",
        _UPDATES,
        "    if op.weight_decay[i]:\n        g = g + op.weight_decay[i] * p\n    if v is None:",
        "    if op.weight_decay[i]:\n        g = g - op.weight_decay[i] * p\n    if v is None:",
        (_SGD,),
    ),
    Mutant(
        "Adam: bias correction counted from the start of the training",
        _UPDATES,
        "    t = now - op.start[i] + 1\n",
        "    t = now + 1\n",
        (f"{_OPTIMIZER}::test_a_frozen_parameter_stands_still",),
    ),
    Mutant(
        "Adam: eps under the root",
        _UPDATES,
        "(np.sqrt(v) / sqrt(1.0 - op.beta2**t) + op.eps)",
        "np.sqrt(v / (1.0 - op.beta2**t) + op.eps)",
        (f"{_OPTIMIZER}::test_these_are_pytorchs",),
    ),
    Mutant(
        "AdamW: weight decay added to the gradient",
        _UPDATES,
        "and op.decoupled:\n        p = p - lr * op.weight_decay[i] * p\n",
        "and op.decoupled:\n        g = g + op.weight_decay[i] * p\n",
        (f"{_OPTIMIZER}::test_these_are_pytorchs",),
    ),
    Mutant(
        "Muon: the sign of a coefficient",
        _UPDATES,
        "(b * gram + c * gram @ gram) @ x",
        "(b * gram - c * gram @ gram) @ x",
        (f"{_OPTIMIZER}::test_muon_makes_the_update_orthogonal",),
    ),
    Mutant(
        "Adagrad: the rate falls one step early",
        "optimizers/adagrad.py",
        "p -= lr / (1.0 + (t - 1) * self.lr_decay) * g",
        "p -= lr / (1.0 + t * self.lr_decay) * g",
        (f"{_OPTIMIZER}::test_these_are_pytorchs",),
    ),
    Mutant(
        "average: old and new weight swapped",
        _UPDATES,
        "decay * a + (1 - decay) * p for a, p",
        "(1 - decay) * a + decay * p for a, p",
        (f"{_OPTIMIZER}::test_ema",),
    ),
    Mutant(
        "average: lookahead does not pull the weights",
        _UPDATES,
        "return mixed, mixed if op.pull else values",
        "return mixed, values",
        (f"{_OPTIMIZER}::test_lookahead",),
    ),
    Mutant(
        "parts of a batch: the sum is not begun anew",
        "graph/ops/updates.py",
        "        part = step % self.parts\n",
        "        part = min(step, self.parts - 1)\n",
        (f"{_PHASES}::test_parts_of_a_batch_are_as_good_as_the_whole",),
    ),
    Mutant(
        "parts of a batch: the sums of neighbours wait until the end",
        "graph/ops/updates.py",
        "        return waiting, (part & ~(part + 1)).bit_count()\n",
        "        return waiting, 0\n",
        ("backends/test_part_sums.py::test_sums_wait_on_one_level_for_each_doubling",),
    ),
    Mutant(
        "parts of a batch: running statistics take the last part alone",
        "backends/reference/statistics.py",
        "    for row in kept:\n",
        "    for row in kept[-1:]:\n",
        ("backends/test_part_sums.py::test_statistics_move_by_every_part_in_order",),
    ),
    Mutant(
        "lookahead: the last step is left out",
        "optimizers/optimizer.py",
        "    if decays[-1] < 0:\n        decays[-1] = 1.0\n",
        "",
        (f"{_SCHEDULES}::test_lookahead_grows_towards_the_end_where_it_takes_the_slow_weights",),
    ),
    Mutant(
        "groups: a frozen parameter is trained",
        "optimizers/optimizer.py",
        "return tuple(one for one in found if not one.group.frozen)",
        "return tuple(found)",
        (f"{_OPTIMIZER}::test_what_is_frozen_for_good_has_no_state",),
    ),
    Mutant(
        "groups: training begins too early",
        "optimizers/optimizer.py",
        "            if start <= first_step < stop:\n",
        "            if first_step < stop:\n",
        (f"{_OPTIMIZER}::test_a_frozen_parameter_stands_still",),
    ),
    Mutant(
        "evaluation: the trained weights instead of their averages",
        "optimizers/optimizer.py",
        'if a.name.startswith(f"{EMA}/")',
        "if False",
        (f"{_PHASES}::test_evaluation_takes_the_averages",),
    ),
    Mutant(
        "schedules: a step falls one step late",
        "optimizers/schedules/steps.py",
        "self.gamma ** np.floor(length.t / size)",
        "self.gamma ** np.floor((length.t - 1).clip(0) / size)",
        (f"{_SCHEDULES}::test_step_falls_at_multiples_of_its_size",),
    ),
    Mutant(
        "schedules: a milestone falls one step late",
        "optimizers/schedules/steps.py",
        'side="right"',
        'side="left"',
        (f"{_SCHEDULES}::test_multistep_falls_at_the_milestone_itself",),
    ),
    Mutant(
        "schedules: inv with a positive exponent",
        "optimizers/schedules/decay.py",
        "** -self.power",
        "** self.power",
        (f"{_SCHEDULES}::test_inv_is_caffes",),
    ),
    Mutant(
        "schedules: compounding begins at the first step",
        "optimizers/schedules/decay.py",
        "self.decay * length.t)",
        "self.decay * (length.t + 1))",
        (f"{_SCHEDULES}::test_compounding_multiplies_at_every_step_from_the_second_on",),
    ),
    Mutant(
        "schedules: half a cosine wave is a whole one",
        "optimizers/schedules/schedule.py",
        "np.cos(math.pi * part)",
        "np.cos(2 * math.pi * part)",
        (f"{_SCHEDULES}::test_cosine",),
    ),
    Mutant(
        "schedules: warmup without its start factor",
        "optimizers/schedules/schedule.py",
        "return self.start_factor + (1.0 - self.start_factor) * part",
        "return part",
        (f"{_SCHEDULES}::test_warmup_multiplies_the_schedule",),
    ),
    Mutant(
        "schedules: epochs are cut down to steps",
        "optimizers/schedules/schedule.py",
        "math.ceil((epochs or 0.0) * steps_per_epoch - 1e-6)",
        "math.floor((epochs or 0.0) * steps_per_epoch)",
        (f"{_SCHEDULES}::test_a_begun_step_of_the_training_is_done_whole",),
    ),
    Mutant(
        "plan: a short run has few lines in its log",
        "training/plan.py",
        "min(_MOST, per_epoch, total // _LINES)",
        "min(_MOST, per_epoch)",
        (f"{_PLAN}::test_a_log_of_any_run_has_enough_lines",),
    ),
    Mutant(
        "plan: the evaluation of the last step is left out",
        "training/plan.py",
        "return step == self.total_steps or (interval > 0 and step % interval == 0)",
        "return interval > 0 and step % interval == 0",
        (f"{_PLAN}::test_what_is_due",),
    ),
    Mutant(
        "metrics: the mean divides by the right answers",
        "training/metrics.py",
        "loss = float(sums[0]) / count if count",
        "loss = float(sums[0]) / max(sums[1], 1) if count",
        ("training/records/test_run_log.py::test_metrics_from_sums",),
    ),
    Mutant(
        "initial values: all layers of one shape start alike",
        "training/network.py",
        'random.key(seed, "initialize", p.tensor.name)',
        'random.key(seed, "initialize")',
        ("training/test_network.py::test_two_layers_of_one_shape_start_differently",),
    ),
    Mutant(
        "initial values: a normal law with the limit of the uniform one",
        "layers/initializers.py",
        'return sqrt(3.0 * variance) if law == "uniform" else sqrt(variance)',
        "return sqrt(3.0 * variance)",
        ("layers/test_initializers.py::test_scaled_by_fans",),
    ),
    Mutant(
        "initial values: he with the variance of lecun",
        "layers/initializers.py",
        "            variance *= 2.0\n",
        "            pass\n",
        ("layers/test_initializers.py::test_scaled_by_fans",),
    ),
    Mutant(
        "dropout layer: the scale of the share that is dropped",
        "layers/dropout.py",
        "self.scale = 1.0 / (1.0 - self.rate)",
        "self.scale = 1.0 / self.rate",
        ("layers/test_norm.py::test_the_key_of_dropout_is_of_seed_and_layer",),
    ),
    Mutant(
        "dropout layer: one key for all layers",
        "layers/dropout.py",
        'random.key(graph.seed, "dropout", self.name)',
        'random.key(graph.seed, "dropout")',
        ("layers/test_norm.py::test_the_key_of_dropout_is_of_seed_and_layer",),
    ),
    Mutant(
        "resume: sums of metrics are not restored",
        "training/session.py",
        "self.put(Snapshot(state.step, np.array(state.sums, np.float64), values))",
        "self.put(Snapshot(state.step, np.zeros(3), values))",
        (f"{_SAME_BITS}::test_many_interruptions_change_no_bit",),
    ),
    Mutant(
        "resume: the step is not restored",
        "training/session.py",
        "self.put(Snapshot(state.step, np",
        "self.put(Snapshot(0, np",
        (f"{_SAME_BITS}::test_a_resume_changes_no_bit",),
    ),
    Mutant(
        "resume: the lower rate of a rollback is forgotten",
        "training/session.py",
        "        self.set_rate_factor(state.rate_factor)\n",
        "",
        ("training/test_divergence.py::test_a_resume_goes_on_with_the_lower_rate",),
    ),
    Mutant(
        "resume: momentum starts at zero",
        "training/session.py",
        "                executable.write(tensor, arrays[tensor.name])\n",
        "                value = arrays[tensor.name]\n"
        '                executable.write(tensor, value * ("/" not in tensor.name))\n',
        (f"{_SAME_BITS}::test_a_resume_changes_no_bit",),
    ),
    Mutant(
        "resume: the best validation is forgotten",
        "training/records/state.py",
        '"best": vars(self.best) if self.best else None',
        '"best": None',
        (f"{_SAME_BITS}::test_the_best_of_before_is_not_forgotten",),
    ),
    Mutant(
        "resume: a locked run is taken",
        "training/records/resume.py",
        "    run = reopen_run(folder, notice) if folder is not None else None\n",
        "    from .runs import Run\n    run = Run(folder, None) if folder is not None else None\n",
        ("training/records/resume/test_refusals.py::test_a_run_in_use_is_not_resumed",),
    ),
    Mutant(
        "resume: checkpoints without manifests are written over",
        "training/records/resume.py",
        "    if len(orphans) > 1:\n",
        "    if False:\n",
        (
            "training/records/resume/test_refusals.py::"
            "test_checkpoints_without_manifests_are_not_written_over",
        ),
    ),
    Mutant(
        "patience: equal counts as better",
        "training/records/state.py",
        "-found.loss) > (best.accuracy, -best.loss)",
        "-found.loss) >= (best.accuracy, -best.loss)",
        ("training/test_patience.py::test_what_counts_as_better",),
    ),
    Mutant(
        "rollback: the rate stays",
        "training/recovery.py",
        "RATE_FACTOR = 0.5",
        "RATE_FACTOR = 1.0",
        (
            "training/test_divergence.py::"
            "test_a_rollback_halves_the_rate_from_the_last_checkpoint_on",
        ),
    ),
    Mutant(
        "a stranger's checkpoint: its data folder is used",
        "training/records/trained.py",
        "    if run_of_checkpoint(checkpoint.path) is not None or not named:\n",
        "    if True:\n",
        ("cli/test_data_folder.py::test_a_file_from_elsewhere_names_no_folder",),
    ),
    Mutant(
        "a removed run: saved where nobody looks",
        "training/records/lost_run.py",
        "    if path == run.path:\n",
        "    if True:\n",
        ("training/records/test_lost_run.py",),
    ),
)
