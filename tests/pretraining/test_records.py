"""A run remembers its records. Oracles: which files were changed here, and how."""

import pytest

from bert_tf.pretraining.records import (
    check_unchanged,
    describe_records,
    name_records,
    remember_records,
)
from bert_tf.run_pretraining import Options
from bert_tf.runs.run import Run
from tfrecords.manifest import shard_entry, write_manifest


def test_other_records_under_the_same_name_are_named(tmp_path, monkeypatch):
    """Oracles: a file without a manifest changed, removed, added; a new set with a manifest."""
    monkeypatch.chdir(tmp_path)
    files = [tmp_path / f"{name}.tfrecord" for name in "abc"]
    for file in files[:2]:
        file.write_text("records of " + file.name)
    options = dict(input_file="*.tfrecord", output_dir="run", preset="tiny", do_train=True)
    run = Run("run")

    def contents(**changes):
        return describe_records(name_records(Options(**options | changes)))

    def differences(message, **changes):
        with pytest.raises(ValueError, match=f"run was made from .*{message}"):
            check_unchanged(Run("run"), contents(**changes))

    remember_records(run, contents())
    files[0].write_text("longer records of a")
    check_unchanged(Run("run"), contents())  # there is no checkpoint to resume from
    (tmp_path / "run" / "ckpt-1.index").touch()
    differences(r"\(./a.tfrecord had 21 bytes and has 19\): restore what \*.tfrecord")
    files[0].write_text("RECORDS of " + files[0].name)
    differences(r"\(./a.tfrecord has changed\)")
    files[2].write_text("more")
    files[1].unlink()
    differences("changed, ./c.tfrecord is new, ./b.tfrecord is gone")
    # Another --input_file is a decision, and does not make the run forget the first.
    check_unchanged(Run("run"), contents(input_file="c.tfrecord"))
    remember_records(run, contents(input_file="c.tfrecord"))
    differences("b.tfrecord is gone")
    # The manifest knows the checksum of the whole file.
    write_manifest("c.manifest.json", {"shards": [shard_entry("c.tfrecord", 1)]})
    check_unchanged(Run("run"), contents(input_file="c.tfrecord"))
    remember_records(run, contents(input_file="c.tfrecord"))
    entry = shard_entry("c.tfrecord", 1) | {"sha256": "0" * 64}
    write_manifest("c.manifest.json", {"shards": [entry]})
    differences("c.tfrecord has changed", input_file="c.tfrecord")
    (tmp_path / "run" / "records.json").unlink()
    check_unchanged(Run("run"), contents(input_file="c.tfrecord"))
