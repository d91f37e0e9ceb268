"""The sampler's second part: which ids top-k and top-p keep, without sorting.

Both filters are one question: with a weight per id (1 for top-k, its mass for top-p) and a target (k, p times all mass),
keep an id iff the ids with a smaller distance weigh less than the target. The answer is a largest distance, `cut`. Raw
views ask it with k = N, for the ids of the top logprobs.

1. histogram_kernel adds up weights by bins of the distance, 1/32 wide: top-k's if the row has top-k, else top-p's.
2. bound_kernel finds the bin in which the target is reached, one block per view.
3. collect_kernel lists the ids of that bin; of a row with top-k also those before it, which top-p will weigh.
4. select_kernel finds the cut by radix select on the distance's bits, RADIX_BITS at a time, first of top-k, then of top-p.
   If a list does not fit its CAPACITY (thousands of equal logits), the row itself is read instead.

Weights are integers, so sums have no order and any number of blocks gives the same cut. Bytes: 8 S V, and 16 S V with logprobs.
"""

from vtlite.cuda.kernel import device, kernel
from vtlite.cuda.lang import (atomic_add_shared_u32, atomic_add_shared_u64, atomic_add_u32, atomic_add_u64, ballot, consteval, cuda,
                              f32, f64, i32, load_shared_u64, popc, ptr, redux_max, select, shared_address, shfl_idx,
                              store_shared_u64, u32, u32_as_f32, u64, vote_any)
from vtlite.cuda.sampling_adjust import first_item, item_stride
from vtlite.cuda.sampling_rows import (ALIGNED, BINS, CAPACITY, DENSE, INFINITE, MIN_P, RADIX, RADIX_BITS, TEMPERATURE, THREADS,
                                       TOP_K, TOP_P, bin_of, distance_of, divisor_of, is_finite, largest_of, last_bin,
                                       load_logits, mass_of, min_u32, parameter, prebuilt, reads_adjusted, row_of, warp_sum_u64)

BINNED = (*DENSE, "BINS")
LISTING, SELECTING = (*BINNED, "CAPACITY"), ("BINS", "CAPACITY", "RADIX", "RADIX_BITS")
NOWHERE = 0xFFFFFFFF             # a distance above all
LIKELY = 32                      # ids that a raw view lists at least, if any: the drawn id is mostly among them, and so ranked


# -- what a view asks for

@device
def draws(table, row):
    """Whether a row draws at random: only then its filters matter."""
    return parameter(table, row, TEMPERATURE) != u32(0)


@device
def top_k_of(table, view, num_rows, top_n):
    """k, 0 for none; of raw views N, but LIKELY of fewer."""
    row = row_of(view, num_rows)
    k = select(draws(table, row), parameter(table, row, TOP_K), u32(0))
    return select(view < num_rows, k, select(top_n != u32(0) and top_n < u32(LIKELY), u32(LIKELY), top_n))


@device
def top_p_of(table, view, num_rows):
    row = row_of(view, num_rows)
    return select(view < num_rows and draws(table, row), u32_as_f32(parameter(table, row, TOP_P)), f32(1))


@device
def min_p_of(table, view, num_rows):
    return select(view < num_rows, u32_as_f32(parameter(table, row_of(view, num_rows), MIN_P)), f32(0))


@device
def weight_of(distance, counting, min_p):
    return u64(1) if counting else mass_of(distance, min_p)


@device
def last_of(count):
    """The index of the last of `count` things; 0 of none, which a top-p of 0 would leave."""
    return count - select(count != u32(0), u32(1), u32(0))


# -- the first histogram

@device
def nearest_of(distances):
    return min_u32(min_u32(distances[0], distances[1]), min_u32(distances[2], distances[3]))


@device
def add_to_bins(low, high, distance, last, counting, min_p):
    """Add an id's weight to its bin, kept as two u32: the carry of the low word goes to the high one."""
    bin = bin_of(distance)
    if bin <= last:
        weight = weight_of(distance, counting, min_p)
        added, carried = u32(weight & u64(0xFFFFFFFF)), u32(weight >> u64(32))
        if added != u32(0):
            before = atomic_add_shared_u32(low + bin * u32(4), added)
            carried = carried + select(before + added < before, u32(1), u32(0))
        if carried != u32(0):
            atomic_add_shared_u32(high + bin * u32(4), carried)


@kernel((ptr(u32), ptr(f32), ptr(f32), ptr(u32), ptr(u64), ptr(u64), u32, u32, u32), threads=lambda THREADS, **_: THREADS,
        constants=BINNED, prebuild=prebuilt(*BINNED))
def histogram_kernel(table, logits, adjusted, keys, histogram, totals, vocab_size, num_rows, top_n):
    """histogram[view, bin] = weight of the ids there; totals[view] = all mass, of raw views."""
    view = u32(cuda.blockIdx.y)
    row, raw = row_of(view, num_rows), view >= num_rows
    top_k, top_p, min_p = top_k_of(table, view, num_rows, top_n), top_p_of(table, view, num_rows), min_p_of(table, view, num_rows)
    counting, filtering = top_k != u32(0), top_k != u32(0) or top_p < f32(1)
    largest, divisor = largest_of(table, keys, view, num_rows), divisor_of(table, view, num_rows)
    source, last = adjusted if reads_adjusted(table, view, num_rows) else logits, last_bin(view, largest, num_rows)
    low_words, high_words = cuda.shared.array(BINS, u32), cuda.shared.array(BINS, u32)
    if is_finite(largest) and (filtering or raw):
        bin = u32(cuda.threadIdx.x)
        while bin < u32(BINS):
            low_words[bin], high_words[bin] = u32(0), u32(0)
            bin += u32(THREADS)
        cuda.syncthreads()

        low, high, total = shared_address(low_words), shared_address(high_words), u64(0)
        distances = cuda.local.array(4, u32)
        group, lane, best, bound = first_item(), u32(cuda.laneid), u32(INFINITE), u32(INFINITE)
        while (group - lane) * u32(4) < vocab_size:                          # all lanes of a warp go on together
            a, b, c, d = load_logits(source, row, group, vocab_size)
            distances[0], distances[1] = distance_of(a, divisor, largest), distance_of(b, divisor, largest)
            distances[2], distances[3] = distance_of(c, divisor, largest), distance_of(d, divisor, largest)
            if counting and top_k <= u32(32):                                # each lane's best are 32 ids: no other farther than
                best = min_u32(best, nearest_of(distances))                  # they are can be among the first k
                bound = redux_max(best)
            for i in consteval(range(4)):
                if filtering and distances[i] <= bound:
                    add_to_bins(low, high, distances[i], last, counting, min_p)
                if raw:
                    total += mass_of(distances[i], f32(0))
            group += item_stride()
        if raw:
            total = warp_sum_u64(total)
            if u32(cuda.laneid) == u32(0):
                atomic_add_u64(totals, view, total)

        cuda.syncthreads()
        bin = u32(cuda.threadIdx.x)
        while bin < u32(BINS):
            weight = u64(high_words[bin]) << u64(32) | u64(low_words[bin])
            if weight != u64(0):
                atomic_add_u64(histogram, view * u32(BINS) + bin, weight)
            bin += u32(THREADS)


@device
def sum_below(sums, value):
    """(sum of `value` over the threads before this one, sum over all); `sums` is the shared address of 2 RADIX u64."""
    tid, width = u32(cuda.threadIdx.x), u32(8 * RADIX)
    mine, other = sums + tid * u32(8), sums + width + tid * u32(8)
    store_shared_u64(mine, value)
    cuda.syncthreads()
    running, step = value, u32(1)
    while step < u32(RADIX):                                                 # Hillis and Steele 1986, between two buffers
        if tid >= step:
            running = running + load_shared_u64(mine - step * u32(8))
        store_shared_u64(other, running)
        cuda.syncthreads()
        mine, other, step = other, mine, step * u32(2)
    total = load_shared_u64(mine + (u32(RADIX - 1) - tid) * u32(8))
    cuda.syncthreads()
    return running - value, total


@kernel((ptr(u32), ptr(u32), ptr(u64), ptr(u64), ptr(u32), ptr(u64), u32, u32), threads=lambda RADIX, **_: RADIX,
        constants=("BINS", "RADIX"), prebuild=prebuilt("BINS", "RADIX"))
def bound_kernel(table, keys, histogram, totals, bins, above, num_rows, top_n):
    """bins[view] = first and last bin to list, above[view] = weight before the first, totals[view] = all mass, for top-p alone."""
    view, tid = u32(cuda.blockIdx.x), u32(cuda.threadIdx.x)
    top_k, top_p = top_k_of(table, view, num_rows, top_n), top_p_of(table, view, num_rows)
    largest = largest_of(table, keys, view, num_rows)
    held, sums = cuda.shared.array(1, u32), shared_address(cuda.shared.array(consteval(2 * RADIX), u64))
    if is_finite(largest) and (top_k != u32(0) or top_p < f32(1)):
        first = view * u32(BINS) + tid * u32(BINS // RADIX)
        weight = u64(0)
        for i in consteval(range(BINS // RADIX)):
            weight = weight + histogram[first + u32(i)]
        below, total = sum_below(sums, weight)
        target = f64(top_k) if top_k != u32(0) else f64(top_p) * f64(total)

        if tid == u32(0):
            held[0] = u32(0)
        cuda.syncthreads()
        count, before = u32(0), below
        for i in consteval(range(BINS // RADIX)):
            if f64(before) < target:
                count += u32(1)
            before = before + histogram[first + u32(i)]
        atomic_add_u32(held, u32(0), count)
        cuda.syncthreads()

        bin = last_of(held[0])                                              # the last one before which the target is not reached
        if tid == bin // u32(BINS // RADIX):
            last = min_u32(bin, last_bin(view, largest, num_rows))
            bins[view * u32(2)], bins[view * u32(2) + u32(1)] = select(top_k != u32(0), u32(0), last), last
            if top_k == u32(0):
                totals[view] = total
                before = below
                for i in consteval(range(BINS // RADIX)):
                    if tid * u32(BINS // RADIX) + u32(i) < last:
                        before = before + histogram[first + u32(i)]
                above[view] = before
    elif tid == u32(0):
        bins[view * u32(2)], bins[view * u32(2) + u32(1)] = u32(1), u32(0)               # no bin


# -- the lists

@device
def item_of(distance, id):
    """An id with its distance, ordered by distance, then by id."""
    return u64(distance) << u64(32) | u64(id)


@device
def distance_in(item):
    return u32(item >> u64(32))


@device
def id_in(item):
    return u32(item & u64(0xFFFFFFFF))


@kernel((ptr(u32), ptr(f32), ptr(f32), ptr(u32), ptr(u32), ptr(u32), ptr(u64), u32, u32), threads=lambda THREADS, **_: THREADS,
        constants=LISTING, prebuild=prebuilt(*LISTING))
def collect_kernel(table, logits, adjusted, keys, bins, counts, lists, vocab_size, num_rows):
    """counts[view] = number of ids in the view's bins; lists[view] = the first CAPACITY of them to come, in any order."""
    view, lane = u32(cuda.blockIdx.y), u32(cuda.laneid)
    row = row_of(view, num_rows)
    first_bin, last = bins[view * u32(2)], bins[view * u32(2) + u32(1)]
    if first_bin <= last:
        largest, divisor = largest_of(table, keys, view, num_rows), divisor_of(table, view, num_rows)
        source = adjusted if reads_adjusted(table, view, num_rows) else logits
        distances = cuda.local.array(4, u32)
        group = first_item()
        while (group - lane) * u32(4) < vocab_size:
            a, b, c, d = load_logits(source, row, group, vocab_size)
            distances[0], distances[1] = distance_of(a, divisor, largest), distance_of(b, divisor, largest)
            distances[2], distances[3] = distance_of(c, divisor, largest), distance_of(d, divisor, largest)
            if vote_any(bin_of(nearest_of(distances)) <= last):
                for i in consteval(range(4)):
                    id, bin = group * u32(4) + u32(i), bin_of(distances[i])
                    inside = first_bin <= bin and bin <= last and id < vocab_size
                    chosen = ballot(inside)
                    start = u32(0)
                    if lane == u32(0) and chosen != u32(0):
                        start = atomic_add_u32(counts, view, popc(chosen))
                    slot = shfl_idx(start, u32(0)) + popc(chosen & ((u32(1) << lane) - u32(1)))
                    if inside and slot < u32(CAPACITY):
                        lists[view * u32(CAPACITY) + slot] = item_of(distances[i], id)
            group += item_stride()


@device
def lists_all(bins, counts, view, distance):
    """Whether a view's list holds every id that is not farther away than `distance`."""
    return bins[view * u32(2)] == u32(0) and bin_of(distance) <= bins[view * u32(2) + u32(1)] and counts[view] <= u32(CAPACITY)


@device
def load_item(lists, source, view, row, i, listed, vocab_size, divisor, largest, first_bin, last):
    """Item i of a view's list; or, if that is not complete, id i if it belongs there, else one at distance NOWHERE."""
    if listed:
        item = lists[view * u32(CAPACITY) + i]
    else:
        distance = distance_of(source[row * vocab_size + i], divisor, largest)
        bin = bin_of(distance)
        item = item_of(select(first_bin <= bin and bin <= last, distance, u32(NOWHERE)), i)
    return item


# -- radix select

@device
def find_cut(sums, lists, source, view, row, count, vocab_size, divisor, largest, first_bin, last, counting, min_p, limit, above,
             target):
    """The largest distance below which ids weigh less than `target`; ids farther than `limit` do not count.

    `above` is what ids weigh that come before the list; `sums` is the shared address of 3 RADIX u64.
    """
    weights, tid = sums + u32(16 * RADIX), u32(cuda.threadIdx.x)
    cut, upper, listed = u32(0), u32(32), count <= u32(CAPACITY)
    num_items = select(listed, count, vocab_size)
    while upper > u32(0):                                                    # bits of the cut from `upper` on are found
        lower = upper - min_u32(upper, u32(RADIX_BITS))
        store_shared_u64(weights + tid * u32(8), u64(0))
        cuda.syncthreads()
        i = tid
        while i < num_items:
            distance = distance_in(load_item(lists, source, view, row, i, listed, vocab_size, divisor, largest, first_bin, last))
            if distance <= limit and u64(distance) >> u64(upper) == u64(cut) >> u64(upper):
                digit = (distance ^ cut) >> lower
                atomic_add_shared_u64(weights + digit * u32(8), weight_of(distance, counting, min_p))
            i += u32(RADIX)
        cuda.syncthreads()
        below, total = sum_below(sums, load_shared_u64(weights + tid * u32(8)))
        reached = f64(above + below) >= target or tid >> (upper - lower) != u32(0)
        digit = last_of(u32(cuda.syncthreads_count(select(reached, i32(0), i32(1)))))
        if tid == digit:
            store_shared_u64(sums, below)
        cuda.syncthreads()
        above, cut, upper = above + load_shared_u64(sums), cut | digit << lower, lower
        cuda.syncthreads()
    return cut


@device
def mass_within(sums, lists, source, view, row, count, vocab_size, divisor, largest, first_bin, last, min_p, limit):
    """All mass of ids not farther than `limit`."""
    i, mass, listed = u32(cuda.threadIdx.x), u64(0), count <= u32(CAPACITY)
    num_items = select(listed, count, vocab_size)
    while i < num_items:
        distance = distance_in(load_item(lists, source, view, row, i, listed, vocab_size, divisor, largest, first_bin, last))
        if distance <= limit:
            mass = mass + mass_of(distance, min_p)
        i += u32(RADIX)
    below, total = sum_below(sums, mass)
    return total


@kernel((ptr(u32), ptr(f32), ptr(f32), ptr(u32), ptr(u64), ptr(u32), ptr(u64), ptr(u32), ptr(u64), ptr(u32), u32, u32, u32),
        threads=lambda RADIX, **_: RADIX, constants=SELECTING, prebuild=prebuilt(*SELECTING))
def select_kernel(table, logits, adjusted, keys, totals, bins, above, counts, lists, cuts, vocab_size, num_rows, top_n):
    """cuts[view] = bits of the largest distance that top-k and top-p keep, INFINITE if they are off."""
    view = u32(cuda.blockIdx.x)
    row, count = row_of(view, num_rows), counts[view]
    top_k, top_p, min_p = top_k_of(table, view, num_rows, top_n), top_p_of(table, view, num_rows), min_p_of(table, view, num_rows)
    first_bin, last = bins[view * u32(2)], bins[view * u32(2) + u32(1)]
    largest, divisor = largest_of(table, keys, view, num_rows), divisor_of(table, view, num_rows)
    source = adjusted if reads_adjusted(table, view, num_rows) else logits
    cut, sums = u32(INFINITE), shared_address(cuda.shared.array(consteval(3 * RADIX), u64))
    if first_bin <= last:
        if top_k != u32(0):
            cut = min_u32(cut, find_cut(sums, lists, source, view, row, count, vocab_size, divisor, largest, first_bin, last,
                                        True, min_p, cut, u64(0), f64(top_k)))
        if top_p < f32(1):
            weight, total = u64(0), u64(0)
            if top_k != u32(0):
                total = mass_within(sums, lists, source, view, row, count, vocab_size, divisor, largest, first_bin, last, min_p, cut)
            else:
                weight, total = above[view], totals[view]
            cut = min_u32(cut, find_cut(sums, lists, source, view, row, count, vocab_size, divisor, largest, first_bin, last,
                                        False, min_p, cut, weight, f64(top_p) * f64(total)))
    if u32(cuda.threadIdx.x) == u32(0):
        cuts[view] = cut
