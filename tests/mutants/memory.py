"""Faults in memory of the device and of the host, and in what is kept for the next training."""

from __future__ import annotations

from .mutant import Mutant

_ONEDNN = "backends/onednn"
_LIBRARIES = "backends/cuda/libraries"
_BINDING = "backends/cuda/binding"
_PLAN = "backends/cuda/test_memory_plan.py"
_KEEPING = "many/test_keeping.py"
_NUMBERS = "many/test_numbers.py"
_PICTURES = f"{_BINDING}/test_pictures.py"
_POOL = f"{_LIBRARIES}/test_device_pool.py"
_CLOSING = f"{_BINDING}/test_closing.py"

MEMORY = (
    Mutant(
        "CUDA: what is bound holds its memory in circles",
        f"{_BINDING}/bind.py",
        "        vars(self).clear()\n",
        "",
        (f"{_CLOSING}::test_a_closed_network_holds_no_memory",),
    ),
    Mutant(
        "CUDA: operations whose numbers may change hold what is bound",
        f"{_BINDING}/bind.py",
        "        self.live.close()\n",
        "",
        (f"{_CLOSING}::test_a_closed_network_holds_no_memory",),
    ),
    Mutant(
        "CUDA: what could be bound of a network that does not fit stays",
        "backends/cuda/executable.py",
        "        except BaseException:\n            self.close()\n",
        "        except BaseException:\n",
        (f"{_CLOSING}::test_what_does_not_fit_leaves_nothing",),
    ),
    Mutant(
        "CUDA: an error holds what could be bound",
        f"{_BINDING}/store.py",
        "        vars(self).clear()\n",
        "",
        (f"{_CLOSING}::test_what_does_not_fit_leaves_nothing",),
    ),
    Mutant(
        "CUDA: an error holds the arrays that there was memory for",
        "backends/cuda/failures.py",
        "            error.__traceback__ = None\n            del traceback\n",
        "",
        (f"{_CLOSING}::test_what_does_not_fit_leaves_nothing",),
    ),
    Mutant(
        "CUDA: a network that is bound anew holds its memory twice",
        "backends/cuda/executable.py",
        "        for binder in self._sections.values():\n            binder.close()\n"
        "        for name, graph",
        "        for name, graph",
        (f"{_CLOSING}::test_a_network_that_is_bound_anew_holds_as_much_as_before",),
    ),
    Mutant(
        "CUDA: where device memory runs out, that in reference cycles is not looked for",
        f"{_LIBRARIES}/device_pool.py",
        "            gc.collect()\n",
        "",
        (f"{_POOL}::test_where_it_runs_out_what_lies_in_circles_is_given_back",),
    ),
    Mutant(
        "CUDA: the samples of a shared section count once too often",
        "backends/cuda/memory_plan.py",
        "return max(rest // max(sum(need.per_sample for need in alike), 1), 0)",
        "return max(rest // max(sum(need.per_sample for need in alike), 1) + 1, 0)",
        (f"{_PLAN}::test_a_network_that_cannot_fit_is_refused_with_the_largest_batch_that_can",),
    ),
    Mutant(
        "keeping: sections with other operations count as the same",
        "backends/keeping.py",
        "if all(known.ops == graph.ops for",
        "if all(len(known.ops) == len(graph.ops) for",
        (f"{_KEEPING}::test_what_is_compiled_anew",),
    ),
    Mutant(
        "keeping: other numbers are not told to what is bound",
        "backends/live.py",
        "            live.renumber(other)\n",
        "",
        (f"{_NUMBERS}", "backends/cuda/test_renumber.py"),
    ),
    Mutant(
        "keeping: a number that an operation lacked counts as another one",
        "backends/live.py",
        "if all(_alike(*pair) for pair in found.values()) else None",
        "",
        ("backends/cuda/test_renumber.py::test_what_cannot_become_another_stays_as_it_was",),
    ),
    Mutant(
        "keeping: what no longer fits is not freed",
        "backends/keeping.py",
        "            kept.executable.close()\n        del kept",
        "            pass\n        del kept",
        (f"{_KEEPING}::test_what_is_compiled_anew",),
    ),
    Mutant(
        "oneDNN: of what is kept the state stays",
        f"{_ONEDNN}/executable.py",
        "        self._store.clear()\n",
        "        pass\n",
        (f"{_KEEPING}::test_renewed_it_is_empty_but_for_its_data",),
    ),
    Mutant(
        "CUDA: pictures that have been changed count as copied",
        "backends/cuda/binding/store.py",
        "is array and not array.flags.writeable:",
        "is array:",
        (f"{_PICTURES}::test_what_can_be_changed_is_copied_again",),
    ),
    Mutant(
        "host memory: threads that compile networks count for each other",
        "backends/onednn/memory.py",
        "class _Allowance(threading.local):\n",
        "class _Allowance:\n",
        (
            "backends/onednn/test_host_memory.py::test_threads_that_compile_networks_do_not_count_for_each_other",
        ),
    ),
    Mutant(
        "CUDA: a block of device memory is given out and stays free",
        f"{_LIBRARIES}/device_pool.py",
        "block = known.pop(at) if at < len(known)",
        "block = known[at] if at < len(known)",
        (f"{_POOL}::test_no_two_users_share_a_byte",),
    ),
    Mutant(
        "CUDA: device memory of one stream is given to another",
        f"{_LIBRARIES}/device_pool.py",
        "known = self._free.setdefault(stream, [])",
        "known = self._free.setdefault(0, [])",
        (f"{_POOL}::test_each_stream_has_its_own",),
    ),
    Mutant(
        "CUDA: free neighbours in device memory stay apart",
        f"{_LIBRARIES}/device_pool.py",
        "if behind is not None and behind.free:",
        "if False:",
        (f"{_POOL}::test_no_two_users_share_a_byte",),
    ),
    Mutant(
        "CUDA: where device memory runs out, the reserve is kept",
        f"{_LIBRARIES}/device_pool.py",
        "            self.release()\n            self._spare()\n",
        "",
        (f"{_POOL}::test_where_memory_runs_out_the_reserve_is_freed_first",),
    ),
)
