"""Faults in random numbers, data sets, downloads and caches."""

from __future__ import annotations

from .mutant import Mutant

_RANDOM = "common/test_random.py"
_LOADER = "datasets/test_loader.py"
_BALANCE = "training/test_class_balance.py"
_DECODED = "datasets/test_decoded.py"
_IDX = "datasets/test_idx.py"
_CIFAR = "datasets/test_cifar.py"
_FETCHING = "datasets/download/test_fetching.py"
_HOSTILE = "datasets/download/test_hostile.py"
_PICTURES = "datasets/test_pictures.py"

DATA = (
    Mutant(
        "loader: a balanced class begins anew in every epoch",
        "datasets/loader.py",
        "place, end = epoch * count, (epoch + 1) * count",
        "place, end = 0, count",
        (f"{_BALANCE}::test_all_samples_of_a_class_are_drawn_equally_often",),
    ),
    Mutant(
        "loader: balanced classes one after the other",
        "datasets/loader.py",
        "return np.concatenate(drawn)[order]",
        "return np.concatenate(drawn)",
        (f"{_BALANCE}::test_every_class_is_drawn_equally_often",),
    ),
    Mutant(
        "survey: a colour is known from the pictures that are asked about",
        "datasets/survey.py",
        "_discriminant(x[~held], labels[~held], x[held], classes)",
        "_discriminant(x, labels, x[held], classes) if part else labels[held]",
        ("datasets/test_survey.py::test_whether_colours_tell_the_classes_apart",),
    ),
    Mutant(
        "paths: pictures beside the config are not looked for",
        "configs/paths.py",
        'changed["root"] = root',
        'changed.pop("root", root)',
        ("configs/test_paths.py::test_pictures_are_found_beside_the_config",),
    ),
    Mutant(
        "random: nine rounds",
        "common/random.py",
        "_ROUNDS = 10",
        "_ROUNDS = 9",
        (f"{_RANDOM}::test_published_vectors",),
    ),
    Mutant(
        "random: the key's words swapped",
        "common/random.py",
        'Key(int.from_bytes(head[0:4], "little"), int.from_bytes(head[4:8], "little"))',
        'Key(int.from_bytes(head[4:8], "little"), int.from_bytes(head[0:4], "little"))',
        (f"{_RANDOM}::test_keys_and_streams_stay_the_same_between_releases",),
    ),
    Mutant(
        "random: the name is not part of the key",
        "common/random.py",
        "for field in (str(int(seed)), purpose, name):",
        "for field in (str(int(seed)), purpose):",
        (f"{_RANDOM}::test_keys_differ_in_every_field_and_do_not_run_together",),
    ),
    Mutant(
        "random: fields of the key run together",
        "common/random.py",
        '        digest.update(len(encoded).to_bytes(8, "little"))\n',
        "",
        (f"{_RANDOM}::test_keys_differ_in_every_field_and_do_not_run_together",),
    ),
    Mutant(
        "random: the counter's upper half is lost",
        "common/random.py",
        "    grid[..., 3] = (outer >> _SHIFT)[..., None]\n",
        "    grid[..., 3] = 0\n",
        (f"{_RANDOM}::test_words_place_block_and_counter_as_documented",),
    ),
    Mutant(
        "random: a comparison without equality",
        "common/random.py",
        "np.greater_equal(values, threshold",
        "np.greater(values, threshold",
        (f"{_RANDOM}::test_at_least_counts_the_threshold_itself",),
    ),
    Mutant(
        "random: the sine branch of Box and Muller, with another deviation",
        "common/random.py",
        "np.sqrt(-2.0 * np.log(",
        "np.sqrt(-1.9 * np.log(",
        (f"{_RANDOM}::test_normal_has_the_moments_of_the_normal_law",),
    ),
    Mutant(
        "split: the same for every seed",
        "datasets/loader.py",
        'key(seed, "validation split")',
        'key(0, "validation split")',
        (f"{_LOADER}::test_the_split_depends_on_the_seed_alone",),
    ),
    Mutant(
        "split: validation samples are trained on",
        "datasets/loader.py",
        "in (order[held:], order[:held]))",
        "in (order, order[:held]))",
        (f"{_LOADER}::test_the_split_is_a_partition",),
    ),
    Mutant(
        "shuffling: the same order in all epochs",
        "datasets/loader.py",
        'key(seed, "epoch order"), epoch, len',
        'key(seed, "epoch order"), 0, len',
        (f"{_LOADER}::test_the_order_is_keyed_by_seed_and_epoch",),
    ),
    Mutant(
        "shuffling: none",
        "datasets/loader.py",
        "train_index[order[: steps * batch_size]]",
        "train_index[: steps * batch_size]",
        (f"{_LOADER}::test_the_order_is_keyed_by_seed_and_epoch",),
    ),
    Mutant(
        "evaluation: the last batch is filled up with real samples",
        "datasets/loader.py",
        "np.full(batches * batch_size, -1, np.int32)",
        "np.full(batches * batch_size, index[0], np.int32)",
        (f"{_LOADER}::test_evaluation_covers_every_sample_once",),
    ),
    Mutant(
        "strokes: training and test digits with one key",
        "datasets/strokes.py",
        'key(self.seed, "strokes", split)',
        'key(self.seed, "strokes")',
        ("datasets/test_strokes.py::test_splits_and_seeds_have_no_picture_in_common",),
    ),
    Mutant(
        "decoded cache: pickles are read",
        "datasets/decoded.py",
        "allow_pickle=False",
        "allow_pickle=True",
        (f"{_DECODED}::test_no_pickle_is_read_whatever_its_hash",),
        times=2,
    ),
    Mutant(
        "decoded cache: pickles of labels are read",
        "datasets/decoded.py",
        '"labels.npy", mmap_mode="r", allow_pickle=False',
        '"labels.npy", mmap_mode="r", allow_pickle=True',
        (f"{_DECODED}::test_no_pickle_is_read_whatever_its_hash",),
    ),
    Mutant(
        "decoded cache: the hash is not compared",
        "datasets/decoded.py",
        'path.is_symlink() or sha256_file(path) != entry[name]["sha256"]',
        "path.is_symlink()",
        (f"{_DECODED}::test_bit_rot_is_noticed_whatever_the_time_stamp",),
    ),
    Mutant(
        "decoded cache: the entry is written before the arrays",
        "datasets/decoded.py",
        "    for name, array in arrays.items():\n        pieces",
        "    atomic_write(folder / _ENTRY, json.dumps(entry).encode())\n"
        "    for name, array in arrays.items():\n        pieces",
        (f"{_DECODED}::test_the_entry_is_written_last",),
    ),
    Mutant(
        "decoded cache: a changed file is not noticed",
        "datasets/decoded.py",
        "    return status.st_size, status.st_mtime_ns\n",
        "    return 0, 0\n",
        ("datasets/test_mnist.py::test_changed_sources_are_noticed",),
    ),
    Mutant(
        "data sets: labels of no class are taken",
        "datasets/image_set.py",
        "        if len(wrong):\n",
        "        if False:\n",
        (f"{_DECODED}::test_labels_of_no_class_are_refused",),
    ),
    Mutant(
        "IDX: the length is not checked",
        "datasets/idx.py",
        "    if len(content) > expected:\n",
        "    if False:\n",
        (f"{_IDX}::test_refuses_a_damaged_file_and_names_it",),
    ),
    Mutant(
        "IDX: a compressed file is unpacked to its end",
        "datasets/idx.py",
        "    while len(content) <= expected:\n        piece = file.read(min(_PIECE, expected + 1 - "
        "len(content)))\n",
        "    while True:\n        piece = file.read(_PIECE)\n",
        (f"{_IDX}::test_a_compressed_bomb_costs_no_memory",),
    ),
    Mutant(
        "CIFAR: colours beside each other instead of one after the other",
        "datasets/cifar.py",
        "records[:, len(self.label_bytes) :].reshape(-1, *_PICTURE)",
        "records[:, len(self.label_bytes) :].reshape(-1, 32, 32, 3).transpose(0, 3, 1, 2)",
        (f"{_CIFAR}::test_every_record_is_where_it_belongs",),
    ),
    Mutant(
        "CIFAR: labels are not checked",
        "datasets/cifar.py",
        "            if records[worst, byte] >= len(classes):\n",
        "            if False:\n",
        (f"{_CIFAR}::test_both_labels_of_cifar100_are_checked",),
    ),
    Mutant(
        "archive: any file of the right length is the original",
        "datasets/archive.py",
        "    if found != original.sha256:\n",
        "    if False:\n",
        (f"{_CIFAR}::test_an_archive_that_is_not_the_original_is_refused",),
    ),
    Mutant(
        "archive: unpacked without a limit",
        "datasets/archive.py",
        "        if size > self._left:\n",
        "        if False:\n",
        (f"{_CIFAR}::test_tricks_in_the_archive_are_refused_even_under_the_right_hash",),
    ),
    Mutant(
        "archive: a member outside its folder is taken",
        "datasets/archive.py",
        "    if not inside or member.type not in (*_FILES, tarfile.DIRTYPE):\n",
        "    if False:\n",
        (f"{_CIFAR}::test_tricks_in_the_archive_are_refused_even_under_the_right_hash",),
    ),
    Mutant(
        "download: not synchronised before its name changes",
        "datasets/download.py",
        "        os.fsync(written.fileno())\n",
        "        pass\n",
        (f"{_FETCHING}::test_a_file_reaches_the_disk_before_it_gets_its_name",),
    ),
    Mutant(
        "download: the hash is not checked",
        "datasets/download.py",
        "    if _sha256(part, file) != file.sha256:\n",
        "    if False:\n",
        (f"{_FETCHING}::test_wrong_bytes_never_count",),
    ),
    Mutant(
        "download: an endless file is taken in",
        "datasets/transfer.py",
        "            if held + len(piece) > most:\n",
        "            if False:\n",
        (f"{_HOSTILE}::test_a_body_longer_than_the_file_is_cut",),
    ),
    Mutant(
        "download: a redirect leads anywhere",
        "datasets/transfer.py",
        '        if urlsplit(url).scheme != "https":\n',
        "        if False:\n",
        (f"{_HOSTILE}::test_a_redirect_to_anything_else_is_refused",),
    ),
    Mutant(
        "download: another range than was asked for is appended",
        "datasets/transfer.py",
        "            if not start or found is None or int(found[1]) != start:\n",
        "            if False:\n",
        (
            "datasets/download/test_resumed.py::"
            "test_a_server_that_sends_another_range_is_not_believed",
        ),
    ),
    Mutant(
        "pictures: the number of pixels has no limit",
        "datasets/picture_files.py",
        "    if image.width * image.height > _MAX_PIXELS:\n",
        "    if False:\n",
        (f"{_PICTURES}::test_a_giant_is_refused_before_it_is_decoded",),
    ),
    Mutant(
        "pictures: formats beyond the list",
        "datasets/picture_files.py",
        "Image.open(file, formats=FORMATS)",
        "Image.open(file)",
        (f"{_PICTURES}::test_formats_beyond_the_list_are_refused",),
    ),
    Mutant(
        "pictures: the orientation is ignored",
        "datasets/picture_files.py",
        "    return ImageOps.exif_transpose(image)\n",
        "    return image\n",
        (f"{_PICTURES}::test_the_exif_orientation_is_obeyed",),
    ),
    Mutant(
        "pictures: dark ink stays dark",
        "datasets/photo.py",
        "sign = 1.0 if invert else -1.0",
        "sign = 1.0",
        ("datasets/test_photo.py::test_chalk_on_a_dark_board_is_found_too",),
    ),
    Mutant(
        "tables: a value on the grid is cut off by one",
        "datasets/table.py",
        "numerator = math.gcd(a.numerator * b.denominator, b.numerator * a.denominator)",
        "numerator = min(a.numerator * b.denominator, b.numerator * a.denominator) or 1",
        ("datasets/test_table.py::test_values_on_a_grid_come_back_exactly",),
    ),
    Mutant(
        "grids: a key is set whatever its condition",
        "configs/search.py",
        "elif not left[0].holds(chosen):",
        "elif False:",
        ("configs/test_search.py::test_a_grid_with_conditions",),
    ),
)
