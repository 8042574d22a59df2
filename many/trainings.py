"""What many trainings of one config have in common: the device, the data, and who hears of them."""

from __future__ import annotations

import os
import select
import threading
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path

from ..backends.base import Backend
from ..backends.keeping import Keeping
from ..common.errors import BackendUnavailableError, DnnstackError
from ..common.machine import available_threads
from ..configs import LoadedConfig, RunConfig, placed
from ..datasets import Downloads, ImageSet, Split
from ..datasets.columns import Columns
from ..datasets.integer_pixels import Depth
from ..layers.composite import walk
from ..training import fitting
from ..training.assemble import Load, build_network, data_folder, describe_data, load_data
from ..training.listener import Listener, Summary
from ..training.records.resume import Resume
from ..training.signals import interruptible
from ..training.trainer import check_loggers
from .screen import Say, Screen
from .together import Together, check_together
from .workers import Crew

Ends = Callable[[], bool]


class Shelf:
    """Loads a data set as ``load_data`` does, or ``load``, and keeps the last, for all threads."""

    def __init__(self, load: Load | None = None) -> None:
        self._load = load
        self._kept: tuple[object, ImageSet] | None = None
        self._loading = threading.Lock()

    def __call__(
        self,
        config: RunConfig,
        split: Split,
        root: Path,
        downloads: Downloads | None = None,
        known: Depth | Columns | None = None,
    ) -> ImageSet:
        """Raises DatasetError."""
        chosen, labels = config.data.dataset, config.data.labels
        name = (chosen.type, repr(chosen.options()), labels, split, root.absolute(), known)
        with self._loading:
            if self._kept is not None and self._kept[0] == name:
                return self._kept[1]
            # What is kept needs memory that the next one may need.
            self._kept = None
            found = (self._load or load_data)(config, split, root, downloads, known)
            # What a person should know of it is told to the first training alone.
            self._kept = name, replace(found, doubts=()) if found.doubts else found
            return found


@dataclass(frozen=True)
class Trainings:
    """What each process needs to train some of many; ``count``: of them at a time.

    ``loaded``: the config of a training, given its settings; ``base``: without any. ``together``:
    those at a time are threads of this process, on a GPU. ``resume``: the group to go on with.
    ``stop`` ends all in order.
    """

    base: LoadedConfig
    loaded: Callable[[Sequence[str]], LoadedConfig]
    screen: Screen
    stop: Ends
    count: int = 1
    together: bool = False
    resume: str | None = None
    capture: bool = True
    same_samples: bool = False
    data_dir: Path | None = None
    downloads: Downloads | None = None
    data: Shelf = field(default_factory=Shelf)

    @property
    def threads(self) -> int:
        """Threads of each training."""
        return self.base.config.run.threads or max(1, available_threads() // self.count)

    def device(self) -> Backend:
        """The device of the config. Raises BackendUnavailableError."""
        threads = self.threads if self.count > 1 else None
        how = self.resume is not None, self.capture, self.screen.notice, threads
        return Keeping(fitting.open_device(self.base, *how))

    def prepared(self) -> Backend | None:
        """This process's device; None if worker processes, which are forked later, open theirs.

        The training set is read if several share it. Raises UsageError, BackendUnavailableError,
        DatasetError, Interrupted.
        """
        check_loggers(self.base.config)
        backend = None
        if self.count == 1 or self.together:
            backend = self.device()
            if self.together:
                check_together(backend.name, self.count)
        else:
            self._try_device()
        if self.count > 1:
            root = self._data_folder()
            with placed(self.base):
                interruptible(
                    lambda: self.data(self.base.config, "train", root, self.downloads), self.stop
                )
        return backend

    def _try_device(self) -> None:
        """Open a GPU in a process of its own, for one that is open here is lost to workers.

        Raises BackendUnavailableError.
        """
        if self.base.config.run.device != "cuda":
            return
        ours, theirs = os.pipe()
        pid = os.fork()
        if not pid:
            status = 1
            try:
                os.close(ours)
                self.device()
                status = 0
            except DnnstackError as error:
                os.write(theirs, str(error).encode()[: select.PIPE_BUF])
            finally:
                os._exit(status)
        os.close(theirs)
        with open(ours, "rb") as pipe:
            said = pipe.read().decode(errors="replace")
        os.waitpid(pid, 0)
        if said:
            raise BackendUnavailableError(said)

    def layers(self) -> int:
        """Layers of the config's network, those inside of others included."""
        info = describe_data(self.base.config, self._data_folder())
        return sum(1 for _ in walk(build_network(self.base.config, info).layers))

    def _data_folder(self) -> Path:
        return data_folder(self.base.config, self.data_dir, self.base.config.data.root)

    def train(
        self,
        settings: Sequence[str],
        resumed: Resume | None,
        device: Backend,
        listener: Listener,
        ends: Ends,
    ) -> Summary:
        """One of the trainings, to its end or until ``ends``; the listener is closed then."""
        with closing(self.screen.watched(listener)) as heard:
            done = fitting.fit(
                self.loaded(settings),
                device,
                resumed,
                listener=heard,
                stop_requested=ends,
                data_dir=self.data_dir,
                downloads=self.downloads,
                load=self.data,
                same_samples=self.same_samples,
            )
        self.screen.trained(done.run)
        return done

    def side_by_side(
        self,
        work: Callable[[Say, Ends, Backend], None],
        backend: Backend | None,
        lost: Callable[[int, str], None],
    ) -> None:
        """Do the same ``work`` in ``count`` threads, if ``backend`` is open here, or processes.

        One does it here. ``lost``: see ``Crew``. Raises what the work raises.
        """
        screen = self.screen

        def own(say: Say, ends: Ends) -> None:
            work(say, ends, self.device())

        def ends() -> bool:
            screen.turn()
            return self.stop()

        screen.open()
        try:
            if backend is None:
                Crew(own, screen, lost, self.stop).run(self.count)
            elif self.count > 1:
                Together(backend.name, own, screen, self.stop).run(self.count)
            else:
                work(screen.hear, ends, backend)
        finally:
            screen.close()
