"""The sampler's last part: the draw, and what is told about it.

draw_kernel: argmax over the kept ids of z + Gumbel noise, ties to the lowest id; greedy rows have no noise and keep only ids
at distance 0. Score and id travel in one u64, so the argmax is an atomic max. Noise comes from Philox4x32-10 (Salmon et al.
2011), one block of four words for four neighbouring ids.
rank_kernel counts the raw logits above the drawn one; report_kernel takes logprobs and the top N off the raw view's list.
Both draw and rank use the lists of sampling_select where these hold all that matters: with top-k always (but for thousands of
equal logits), and the rank of a drawn id that is among the likely ones.
Bytes: none to speak of then; else 4 S V to draw and 4 S V to rank.
"""

import numpy as np

from vtlite.cuda.kernel import device, kernel
from vtlite.cuda.lang import (as_u32, atomic_add_u32, atomic_max_u64, consteval, cuda, f32, fabs, i32, i64, load_shared_u64, mul,
                              mul_hi_u32, mul_lo_u32, ptr, redux_add, redux_max, redux_min, select, shared_address,
                              store_shared_u64, u8, u32, u32_as_f32, u32_to_f32, u64)
from vtlite.cuda.sampling_adjust import first_item, item_stride
from vtlite.cuda.sampling_rows import (ALIGNED, BINS, CAPACITY, DENSE, INFINITE, MIN_P, POSITION_HIGH, POSITION_LOW, RADIX, SAFE_DISTANCE,
                                       SAFE_LARGEST, SEED_HIGH, SEED_LOW, THREADS, can_draw, distance_of, divisor_of, from_key,
                                       is_finite, largest_of, load_logits, min_u32, parameter, prebuilt, probability, reads_adjusted, scaled,
                                       to_key)
from vtlite.cuda.sampling_select import NOWHERE, distance_in, draws, id_in, item_of, lists_all, load_item
from vtlite.elementary import log

QUIET_NAN = np.float32(np.nan)
LISTED = ("BINS", "CAPACITY", "RADIX")
DRAWING = (*DENSE, "BINS", "CAPACITY")


# -- noise

@device
def philox(c0, c1, c2, k0, k1):
    """Philox4x32-10 of the counter (c0, c1, c2, 0) and the key (k0, k1): four u32."""
    c3 = u32(0)
    for _ in range(10):
        high0, low0 = mul_hi_u32(c0, u32(0xD2511F53)), mul_lo_u32(c0, u32(0xD2511F53))
        high1, low1 = mul_hi_u32(c2, u32(0xCD9E8D57)), mul_lo_u32(c2, u32(0xCD9E8D57))
        c0, c1, c2, c3 = high1 ^ c1 ^ k0, low1, high0 ^ c3 ^ k1, low0
        k0, k1 = k0 + u32(0x9E3779B9), k1 + u32(0xBB67AE85)
    return c0, c1, c2, c3


@device
def gumbel(bits):
    """Standard Gumbel noise -log(-log u) from the upper 23 of 32 random bits."""
    u = mul(u32_to_f32(bits >> u32(9)) + f32(0.5), f32(2.0**-23))
    return -log(-log(u))


@device
def farthest_kept(table, cuts, view, largest):
    """The largest distance that can be drawn: the filters' cut, 0 for greedy rows, and see `sampling_rows.last_bin`."""
    cut = select(draws(table, view), min_u32(cuts[view], u32(INFINITE - 1)), u32(0))
    near = fabs(largest) < f32(SAFE_LARGEST)
    return select(near, min_u32(cut, as_u32(f32(SAFE_DISTANCE)) - u32(1)), cut)


@device
def word_of(words, i):
    """words[i] for an i that is not a constant, without a trip through memory."""
    return select(i < u32(2), select(i == u32(0), words[0], words[1]), select(i == u32(2), words[2], words[3]))


@device
def score_of(z, divisor, noisy, bits):
    score = scaled(z, divisor)
    if noisy:
        score = score + gumbel(bits)
    return score


@kernel((ptr(u32), ptr(f32), ptr(f32), ptr(u32), ptr(u32), ptr(u32), ptr(u64), ptr(u32), ptr(u64), u32, u32),
        threads=lambda THREADS, **_: THREADS, constants=DRAWING, prebuild=prebuilt(*DRAWING))
def draw_kernel(table, logits, adjusted, keys, bins, counts, lists, cuts, best, vocab_size, num_rows):
    """best[row] = key of the best score in the upper half, ~id in the lower. A row whose kept ids are all listed is drawn from its
    list, by one block; another is walked through."""
    row = u32(cuda.blockIdx.y)
    if can_draw(table, keys, row, num_rows):
        largest, divisor = largest_of(table, keys, row, num_rows), divisor_of(table, row, num_rows)
        source = adjusted if reads_adjusted(table, row, num_rows) else logits
        farthest, noisy = farthest_kept(table, cuts, row, largest), draws(table, row)
        min_p = select(noisy, u32_as_f32(parameter(table, row, MIN_P)), f32(0))
        seed_low, seed_high = parameter(table, row, SEED_LOW), parameter(table, row, SEED_HIGH)
        position_low, position_high = parameter(table, row, POSITION_LOW), parameter(table, row, POSITION_HIGH)
        z, words = cuda.local.array(4, f32), cuda.local.array(4, u32)
        key, rest = u32(0), u32(0)
        if lists_all(bins, counts, row, farthest):
            i, end = first_item(), counts[row]
            while i < end:
                item = lists[row * u32(CAPACITY) + i]
                id, distance = id_in(item), distance_in(item)
                if distance <= farthest and (min_p <= f32(0) or probability(distance) >= min_p):
                    words[0], words[1], words[2], words[3] = philox(id >> u32(2), position_low, position_high, seed_low, seed_high)
                    score = to_key(score_of(source[row * vocab_size + id], divisor, noisy, word_of(words, id & u32(3))))
                    if score > key or (score == key and ~id > rest):         # ids come in any order: among equals the lowest
                        key, rest = score, ~id
                i += item_stride()
        else:
            group = first_item()
            while group * u32(4) < vocab_size:
                z[0], z[1], z[2], z[3] = load_logits(source, row, group, vocab_size)
                nearest = u32(INFINITE)
                for i in consteval(range(4)):
                    nearest = min_u32(nearest, distance_of(z[i], divisor, largest))
                if nearest <= farthest:
                    words[0], words[1], words[2], words[3] = philox(group, position_low, position_high, seed_low, seed_high)
                    for i in consteval(range(4)):
                        distance = distance_of(z[i], divisor, largest)
                        if distance <= farthest and (min_p <= f32(0) or probability(distance) >= min_p):
                            score = to_key(score_of(z[i], divisor, noisy, words[i]))
                            if score > key:                                  # ids ascend: among equals the lowest stays
                                key, rest = score, ~(group * u32(4) + u32(i))
                group += item_stride()
        best_key = redux_max(key)
        best_rest = redux_max(select(key == best_key, rest, u32(0)))
        if u32(cuda.laneid) == u32(0):
            atomic_max_u64(best, row, u64(best_key) << u64(32) | u64(best_rest))


# -- what is told

@device
def drawn_id(table, keys, best, row, num_rows):
    """The drawn id; 0 for a row that cannot draw."""
    return select(can_draw(table, keys, row, num_rows), ~u32(best[row] & u64(0xFFFFFFFF)), u32(0))


@kernel((ptr(u32), ptr(f32), ptr(u32), ptr(u64), ptr(u32), ptr(u32), ptr(u64), ptr(u32), u32, u32),
        threads=lambda THREADS, **_: THREADS, constants=DRAWING, prebuild=prebuilt(*DRAWING))
def rank_kernel(table, logits, keys, best, bins, counts, lists, ranks, vocab_size, num_rows):
    """ranks[row] = number of ids more likely than the drawn one, by raw logits: counted in the raw view's list if all are there."""
    row = u32(cuda.blockIdx.y)
    view, largest = num_rows + row, from_key(keys[num_rows + row])
    if is_finite(largest):
        chosen = distance_of(logits[row * vocab_size + drawn_id(table, keys, best, row, num_rows)], f32(1), largest)
        count = u32(0)
        if lists_all(bins, counts, view, chosen):
            i, end = first_item(), counts[view]
            while i < end:
                count += select(distance_in(lists[view * u32(CAPACITY) + i]) < chosen, u32(1), u32(0))
                i += item_stride()
        else:
            group = first_item()
            while group * u32(4) < vocab_size:
                a, b, c, d = load_logits(logits, row, group, vocab_size)
                count += select(distance_of(a, f32(1), largest) < chosen, u32(1), u32(0))
                count += select(distance_of(b, f32(1), largest) < chosen, u32(1), u32(0))
                count += select(distance_of(c, f32(1), largest) < chosen, u32(1), u32(0))
                count += select(distance_of(d, f32(1), largest) < chosen, u32(1), u32(0))
                group += item_stride()
        count = redux_add(count)
        if u32(cuda.laneid) == u32(0) and count != u32(0):
            atomic_add_u32(ranks, row, count)


@device
def block_min(items, item):
    """The smallest item of any thread of a radix block, in all of them; `items` is the shared address of a u64 per warp."""
    distance = redux_min(distance_in(item))
    id = redux_min(select(distance_in(item) == distance, id_in(item), u32(NOWHERE)))
    if u32(cuda.laneid) == u32(0):
        store_shared_u64(items + (u32(cuda.threadIdx.x) >> u32(5)) * u32(8), item_of(distance, id))
    cuda.syncthreads()
    smallest = item_of(u32(NOWHERE), u32(NOWHERE))
    for warp in consteval(range(RADIX // 32)):
        other = load_shared_u64(items + u32(8 * warp))
        smallest = select(other < smallest, other, smallest)
    cuda.syncthreads()
    return smallest


@kernel((ptr(u32), ptr(f32), ptr(u32), ptr(u64), ptr(u32), ptr(u32), ptr(u64), ptr(u64), ptr(u32),
         ptr(i64), ptr(u8), ptr(f32), ptr(i64), ptr(i64), ptr(f32), u32, u32, i32), threads=lambda RADIX, **_: RADIX,
        constants=LISTED, prebuild=prebuilt(*LISTED))
def report_kernel(table, logits, keys, totals, bins, counts, lists, best, ranks,
                  token_ids, valid, logprobs, rank, top_ids, top_logprobs, vocab_size, num_rows, num_logprobs):
    """One block per row. `num_logprobs` is N, or -1 if no row wants logprobs."""
    row, tid = u32(cuda.blockIdx.x), u32(cuda.threadIdx.x)
    view, id = num_rows + row, drawn_id(table, keys, best, row, num_rows)
    largest, top_n = from_key(keys[view]), u32(select(num_logprobs > i32(0), num_logprobs, i32(0)))
    if tid == u32(0):
        token_ids[row] = i64(id)
        valid[row] = u8(1) if can_draw(table, keys, row, num_rows) else u8(0)
    if num_logprobs < i32(0):
        if tid == u32(0):
            logprobs[row], rank[row] = f32(0), i64(0)
    elif not is_finite(largest):
        if tid == u32(0):
            logprobs[row], rank[row] = QUIET_NAN, i64(0)
        n = tid
        while n < top_n:
            top_ids[row * top_n + n], top_logprobs[row * top_n + n] = i64(0), QUIET_NAN
            n += u32(RADIX)
    else:
        log_sum = log(mul(f32(totals[view]), f32(2.0**-40)))
        if tid == u32(0):
            logprobs[row] = (logits[row * vocab_size + id] - largest) - log_sum
            rank[row] = i64(ranks[row]) + i64(1)
        count, first_bin, last = counts[view], bins[view * u32(2)], bins[view * u32(2) + u32(1)]
        items = shared_address(cuda.shared.array(consteval(RADIX // 32), u64))
        listed, lowest, n = count <= u32(CAPACITY), u64(0), u32(0)
        while n < top_n:
            smallest, i = item_of(u32(NOWHERE), u32(NOWHERE)), tid
            while i < (count if listed else vocab_size):
                item = load_item(lists, logits, view, row, i, listed, vocab_size, f32(1), largest, first_bin, last)
                if item >= lowest and item < smallest:
                    smallest = item
                i += u32(RADIX)
            smallest = block_min(items, smallest)
            if tid == u32(0):
                top_ids[row * top_n + n] = i64(id_in(smallest))
                top_logprobs[row * top_n + n] = (f32(0) - u32_as_f32(distance_in(smallest))) - log_sum
            lowest = smallest + u64(1)
            n += u32(1)
