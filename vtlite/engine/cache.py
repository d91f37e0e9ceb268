"""Blocks of the paged KV cache: who holds which, and which hold a known prefix.

A full block whose tokens and whose whole past are known can serve any request with the same beginning. The prefix
index is a tree: a node stands for a block's tokens after its parent's, and its key (parent node, tokens) is compared
token by token on every hit, so no hash collision can hand out another prompt's KV.

Block 0 is never handed out: it is the harmless target of padding.
"""

from collections import OrderedDict
from collections.abc import Callable, Iterator

ROOT = 0


class BlockPool:
    """`num_blocks` blocks of `block_size` tokens, reference-counted, the free ones in least-recently-used order."""

    def __init__(self, num_blocks: int, block_size: int, enable_prefix_caching: bool = True):
        self.num_blocks, self.block_size = num_blocks, block_size
        self.enable_prefix_caching = enable_prefix_caching
        self._references = [0] * num_blocks
        self._free: OrderedDict[int, None] = OrderedDict.fromkeys(range(1, num_blocks))
        self._node_of_key: dict[tuple[int, tuple[int, ...]], tuple[int, int]] = {}     # key -> (node, block)
        self._key_of_block: dict[int, tuple[int, tuple[int, ...]]] = {}
        self._next_node = ROOT + 1
        self.on_forget: Callable[[int], None] = lambda node: None                      # told of each node that goes
        self.num_queried_tokens = 0
        self.num_hit_tokens = 0

    @property
    def num_usable(self) -> int:
        return self.num_blocks - 1

    @property
    def num_free(self) -> int:
        return len(self._free)

    @property
    def usage(self) -> float:
        """Share of blocks held by requests, 0..1; cached blocks that nobody holds count as free."""
        return 1 - self.num_free / self.num_usable

    def blocks_for(self, num_tokens: int) -> int:
        return -(-num_tokens // self.block_size)

    def match(self, token_ids: list[int]) -> list[tuple[int, int]]:
        """(node, block) of the longest cached prefix in whole blocks, leaving at least one token to compute."""
        hits = []
        if self.enable_prefix_caching:
            node = ROOT
            for tokens in self._full_blocks(token_ids, len(token_ids) - 1):
                found = self._node_of_key.get((node, tokens))
                if found is None:
                    break
                hits.append(found)
                node = found[0]
        return hits

    def admit(self, request, hits: list[tuple[int, int]], num_tokens: int) -> bool:
        """Give a waiting request its `hits` and blocks for its first `num_tokens`.

        False, with nothing changed, unless **all** tokens it has now would fit: a prompt that could not be
        finished is not begun.
        """
        hit_blocks = [block for _, block in hits]
        hits_leaving_free = sum(self._references[block] == 0 for block in hit_blocks)
        if self.blocks_for(request.num_tokens) - len(hits) > self.num_free - hits_leaving_free:
            return False
        for block in hit_blocks:
            self._references[block] += 1
            self._free.pop(block, None)
        request.block_ids = hit_blocks
        if hits:
            request.prefix_node, request.num_registered_blocks = hits[-1][0], len(hits)
        return self.grow(request, num_tokens)

    def grow(self, request, num_tokens: int) -> bool:
        """Extend the request's blocks to `num_tokens`; False, with nothing changed, if too few are free."""
        missing = self.blocks_for(num_tokens) - len(request.block_ids)
        if missing > self.num_free:
            return False
        for _ in range(missing):
            block, _ = self._free.popitem(last=False)
            self._forget(block)
            self._references[block] = 1
            request.block_ids.append(block)
        return True

    def register(self, request) -> None:
        """Enter the request's full, computed blocks in the prefix index."""
        if not self.enable_prefix_caching:
            return
        start = request.num_registered_blocks
        for tokens in self._full_blocks(request.token_ids, request.num_computed_tokens, start):
            key = (request.prefix_node, tokens)
            if key not in self._node_of_key:
                block = request.block_ids[request.num_registered_blocks]
                self._node_of_key[key] = (self._next_node, block)
                self._key_of_block[block] = key
                self._next_node += 1
            request.prefix_node = self._node_of_key[key][0]
            request.num_registered_blocks += 1

    def release(self, request) -> None:
        """Take back all blocks of a request. Its tail becomes free first, so a prefix outlives what follows it."""
        for block in reversed(request.block_ids):
            self._references[block] -= 1
            if self._references[block] == 0:
                self._free[block] = None
                if block not in self._key_of_block:
                    self._free.move_to_end(block, last=False)         # of no use to others: reuse it next
        request.block_ids = []
        request.prefix_node, request.num_registered_blocks = ROOT, 0

    def _full_blocks(self, token_ids: list[int], num_tokens: int, first: int = 0) -> Iterator[tuple[int, ...]]:
        """Tokens of the whole blocks within the first `num_tokens`, from block `first` on."""
        for start in range(first * self.block_size, num_tokens - self.block_size + 1, self.block_size):
            yield tuple(token_ids[start : start + self.block_size])

    def _forget(self, block: int) -> None:
        key = self._key_of_block.pop(block, None)
        if key is not None:
            self.on_forget(self._node_of_key.pop(key)[0])
