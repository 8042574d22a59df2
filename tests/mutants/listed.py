"""Deliberate faults that no draw can make.

Steps in another order, locks that are not taken, syncs that are left out before a rename, formulas
of another meaning over several tokens, and faults in CUDA C++. ``test_listed.py`` tries them.
"""

from __future__ import annotations

from .mutant import Mutant

LISTED = (
    Mutant(
        "files: written in place instead of renamed",
        "common/files.py",
        "    temporary = temporary_name(target)\n",
        "    temporary = target\n    target.unlink(missing_ok=True)\n",
        ("common/test_files.py::test_a_write_that_fails_half_way_leaves_the_old_file",),
    ),
    Mutant(
        "files: the folder is not synchronised after the name has changed",
        "common/files.py",
        "        if durable:\n            sync_folder(os.path.dirname(target) or os.curdir)\n",
        "",
        ("common/test_files.py::test_data_reach_the_disk_before_the_name_changes",),
    ),
    Mutant(
        "files: other programs' temporary files are deleted too",
        "common/files.py",
        'r"\\.(?P<target>.+)\\.(?P<process>\\d+)\\.[0-9a-f]{8}\\.tmp"',
        'r"(?P<target>.*?)(?P<process>\\d*)\\.tmp"',
        ("common/test_files.py::test_what_killed_writers_left_is_deleted_and_nothing_else",),
    ),
    Mutant(
        "lock: shared instead of exclusive",
        "common/locks.py",
        "fcntl.LOCK_EX",
        "fcntl.LOCK_SH",
        ("common/test_locks.py::test_a_lock_excludes_a_second_one_until_released",),
    ),
    Mutant(
        "run folders: not locked",
        "training/records/runs.py",
        "        return lock(path / LOCK)\n    except LockedError as error:\n",
        "        return None\n    except LockedError as error:\n",
        ("training/records/test_runs.py::test_a_held_run_is_refused",),
    ),
    Mutant(
        "run folders: two processes get the same",
        "training/records/runs.py",
        "    except (FileExistsError, LockedError):\n        return None\n"
        "    return _if_bare(run)\n",
        "    except LockedError:\n        return None\n    except FileExistsError:\n"
        "        run = Run(path, None)\n    return run\n",
        (
            "training/records/test_runs.py::test_a_folder_that_another_process_has_just_made_is_stepped_over",
        ),
    ),
    Mutant(
        "checkpoint: the manifest is written before the tensors",
        "training/records/formats/store.py",
        "    atomic_write(path, pieces)\n"
        "    atomic_write(manifest, manifest_text(state.step, path, pieces))\n",
        "    atomic_write(manifest, manifest_text(state.step, path, pieces))\n"
        "    atomic_write(path, pieces)\n",
        (
            "training/records/formats/store/test_commit.py::test_the_manifest_comes_last_and_goes_first",
        ),
    ),
    Mutant(
        "checkpoint: the tensors are deleted before the manifest",
        "training/records/formats/store.py",
        'for kind in ("json", "safetensors")}',
        'for kind in ("safetensors", "json")}',
        (
            "training/records/formats/store/test_commit.py::test_the_manifest_comes_last_and_goes_first",
        ),
    ),
    Mutant(
        "checkpoint: older ones are deleted before the new one is written",
        "training/records/formats/store.py",
        "    atomic_write(path, pieces)\n",
        "    _prune(folder, {state.step})\n    atomic_write(path, pieces)\n",
        (
            "training/records/formats/store/test_commit.py::test_the_last_checkpoint_survives_a_failure_of_any_call",
        ),
    ),
    Mutant(
        "sweeps: every process gets every trial",
        "many/journal.py",
        "            return lock(self._lock_of(trial), keep=False)",
        "            return Lock(os.open(os.devnull, os.O_RDWR), self._lock_of(trial), keep=False)",
        ("cli/test_machines.py::test_two_machines_share_a_sweep[1]",),
    ),
    Mutant(
        "resume: a locked run is taken",
        "training/records/resume.py",
        "    run = reopen_run(folder, notice) if folder is not None else None\n",
        "    from .runs import Run\n    run = Run(folder, None) if folder is not None else None\n",
        ("training/records/resume/test_refusals.py::test_a_run_in_use_is_not_resumed",),
    ),
    Mutant(
        "decoded cache: the entry is written before the arrays",
        "datasets/decoded.py",
        "    for name, array in arrays.items():\n        pieces",
        "    atomic_write(folder / _ENTRY, json.dumps(entry).encode())\n"
        "    for name, array in arrays.items():\n        pieces",
        ("datasets/test_decoded.py::test_the_entry_is_written_last",),
    ),
    Mutant(
        "random: the key's words swapped",
        "common/random.py",
        'Key(int.from_bytes(head[0:4], "little"), int.from_bytes(head[4:8], "little"))',
        'Key(int.from_bytes(head[4:8], "little"), int.from_bytes(head[0:4], "little"))',
        ("common/test_random.py::test_keys_and_streams_stay_the_same_between_releases",),
    ),
    Mutant(
        "split: validation samples are trained on",
        "datasets/loader.py",
        "np.flatnonzero(~chosen)",
        "np.flatnonzero(chosen < 2)",
        ("datasets/test_loader.py::test_the_split_is_a_partition",),
    ),
    Mutant(
        "CIFAR: colours beside each other instead of one after the other",
        "datasets/cifar.py",
        "records[:, len(self.label_bytes) :].reshape(-1, *_PICTURE)",
        "records[:, len(self.label_bytes) :].reshape(-1, 32, 32, 3).transpose(0, 3, 1, 2)",
        ("datasets/test_cifar.py::test_every_record_is_where_it_belongs",),
    ),
    Mutant(
        "windows: strides of height and width swapped",
        "backends/reference/windows.py",
        "(down, right), (rows, columns) = window.stride",
        "(right, down), (rows, columns) = window.stride",
        ("graph/ops/test_linear.py::test_convolution_stride_and_padding_by_axis",),
    ),
    Mutant(
        "SWA: a later step counts as much as all before it",
        "passes/average.py",
        "count / (count + 1.0), -1.0)",
        "np.minimum(count, 1) / 2, -1.0)",
        ("training/test_swa.py::test_which_steps_are_averaged",),
    ),
    Mutant(
        "sharing: the mean of the gradients",
        "backends/reference/sharing.py",
        "    return np.bincount(numbers, gradient.ravel(), count + 1)[1:]",
        "    members = np.maximum(np.bincount(numbers, None, count + 1), 1)\n"
        "    return (np.bincount(numbers, gradient.ravel(), count + 1) / members)[1:]",
        ("training/test_sharing.py::test_a_centroid_moves_by_the_sum_of_its_gradients",),
    ),
    Mutant(
        "split: each rank clips by the norm of its own gradients",
        "passes/clip.py",
        "    if not apart:\n        norms.append(GlobalNorm(gradients=alike,",
        "    if True:\n        norms.append(GlobalNorm(gradients=alike + apart,",
        ("training/ranks/test_split.py::test_units_on_the_ranks_change_roundings_alone",),
    ),
    Mutant(
        "CUDA: a network that is bound anew holds its memory twice",
        "backends/cuda/executable.py",
        "        for binder in self._sections.values():\n            binder.close()\n"
        "        for name, graph",
        "        for name, graph",
        (
            "backends/cuda/binding/test_closing.py::test_a_network_that_is_bound_anew_holds_as_much_as_before",
        ),
    ),
    Mutant(
        "CUDA: a masked row has a loss",
        "backends/cuda/sources/row_loss.cu",
        "        if (row.target >= 0) {\n",
        "        {\n",
        ("backends/cuda/sources/test_formulas.py::test_losses",),
    ),
    Mutant(
        "CUDA: products of warpgroups are not shown what was written",
        "backends/cuda/fused/warpgroup_conv.cu",
        "                    show_products();\n                    meet(warpgroup);",
        "                    meet(warpgroup);",
        ("backends/cuda/fused/test_tensor_conv_emulated.py::test_forward",),
    ),
    Mutant(
        "batch norm: the running variance is moved by that of the batch as it is",
        "backends/cuda/sources/norm.cu",
        "momentum * (apart * fewer);",
        "momentum * var;",
        ("backends/cuda/operations/test_norm_emulated.py::test_slices_are_united",),
    ),
    Mutant(
        "peers: a number is taken before it is there",
        "backends/cuda/sources/peers.cuh",
        "            UNROLLED(k, 4) there = there && (unsigned)(words[k] >> 32) == turn;\n",
        "",
        ("backends/cuda/operations/test_ranks_end_emulated.py::test_ranks_sum_follow_and_gather",),
    ),
    Mutant(
        "peers: a rank writes to what another still reads",
        "backends/cuda/sources/peers.cuh",
        "(area * 2 + turn % 2) * (RANKS - 1)",
        "area * 2 * (RANKS - 1)",
        (
            "backends/cuda/operations/test_peers_emulated.py::test_a_fast_rank_writes_nothing_that_a_slow_one_still_reads",
        ),
    ),
)
