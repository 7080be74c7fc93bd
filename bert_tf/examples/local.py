"""Data creation by processes of one machine."""

from collections import deque

from tqdm import tqdm

from bert_tf.corpus.compression import estimate_content_bytes
from bert_tf.examples.plan import Segment
from bert_tf.examples.work import Work, join_shard, make_segment, read_group, tokenize_part
from bert_tf.workers import Task, Workers


class LocalRunner:
    """Does the pieces of work on `workers`, and shows how far they are."""

    def __init__(self, workers: Workers) -> None:
        self._workers = workers

    def tokenize(self, work: Work) -> None:
        """Leaves every chunk of the input in the work folder."""
        size = estimate_content_bytes([file for group in work.groups for file in group])
        with tqdm(total=size or None, desc="Tokenizing", unit="B", unit_scale=True) as progress:
            tasks = (
                (tokenize_part, work, part)
                for group in range(len(work.groups))
                for part in read_group(work, group)
            )
            for (_, _, part), _ in self._workers.results(tasks):
                progress.update(len(part.block.data))

    def make(self, work: Work, names: list[str], shards: list[list[Segment]]) -> None:
        """Leaves the shards, given by their segments, under their final names."""
        left = {segments[0].shard: len(segments) for segments in shards}
        by_shard = {segments[0].shard: segments for segments in shards}
        examples = 0
        with tqdm(
            total=sum(segment.tokens for segments in shards for segment in segments),
            desc="Making examples",
            unit=" tokens",
            unit_scale=True,
        ) as progress:
            # A shard is joined as soon as its segments are there: they take disk space twice.
            joins: deque[Task] = deque()
            tasks = (
                (make_segment, work, names, segment) for segments in shards for segment in segments
            )
            for task, made in self._workers.results(tasks, first=joins):
                if task[0] is not make_segment:
                    continue
                segment = task[-1]
                examples += made
                progress.set_postfix(examples=f"{examples:,}", refresh=False)
                progress.update(segment.tokens)
                left[segment.shard] -= 1
                if not left[segment.shard]:
                    joins.append((join_shard, work, by_shard[segment.shard]))
