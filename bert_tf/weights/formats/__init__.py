"""Checkpoints of other programs, one module per format.

recognizes(path)
    whether a path is a checkpoint of the format, or a folder that holds one
open_(path, config, ignored)
    opens it. `config` counts if there is no configuration beside the checkpoint; `ignored` are
    patterns of additional weights to leave out. A ValueError or OSError names the file.
write(checkpoint, folder)
    writes a checkpoint into an empty folder. A ValueError says what the other programs lack.
"""
