// SPDX-License-Identifier: GPL-2.0-only OR MIT OR Apache-2.0
//
// An application's handler of a channel's messages, in the kernel [events §3.2]. `data()` has found the channel and held the packet against
// its contract; it calls this program, which never returns there, so what becomes of the packet is decided here. Each handler has a copy of
// this program in which the application's function stands in the place of `on_message` (program/handlers.rs), and its own `notices`.
//
//   done        -> dropped; counted as delivered by the host
//   a reply     -> the packet becomes one of the reply channel, and leaves where it came in, if that channel's contract has room
//   deliver     -> the socket of its class, as if there were no handler
//
// What the channel's policing lets through is what a host that was stopped may send at once, which may be much. A handler takes from others
// what was admitted, and no more: what comes faster than the contract has it, and a few more, goes to the application's queue.

// Channels that have one; and places for them, as each may be about to be replaced.
#define HANDLED 16
#define HANDLERS (2 * HANDLED)
#define BUCKETS 240
#define ENDED_OVER_BUDGET 3
// In the place of which each copy has its own number.
#define OWN_NUMBER 0x4C58AAAA
// A sender that says that its message is later than that is believed no more than that. As CREDIT of the host.
#define MOST_LATE_NS 1000000000ULL

static long (*const load_bytes)(struct xdp_md *context, __u32 offset, void *to, __u32 bytes) = (void *)BPF_FUNC_xdp_load_bytes;
static long (*const store_bytes)(struct xdp_md *context, __u32 offset, void *from, __u32 bytes) = (void *)BPF_FUNC_xdp_store_bytes;
static __u64 (*const length_of)(struct xdp_md *context) = (void *)BPF_FUNC_xdp_get_buff_len;
static long (*const adjust_tail)(struct xdp_md *context, int bytes) = (void *)BPF_FUNC_xdp_adjust_tail;
static long (*const call_instead)(struct xdp_md *context, void *programs, __u32 index) = (void *)BPF_FUNC_tail_call;
static long (*const tell)(void *ring, void *data, __u64 bytes, __u64 flags) = (void *)BPF_FUNC_ringbuf_output;
static __s64 (*const sum_of)(void *from, __u32 from_bytes, void *to, __u32 to_bytes, __u32 sum) = (void *)BPF_FUNC_csum_diff;

// One handler. The loader shares this memory: it writes to it while `active` is 0, and nothing runs that had found it active: `entered` is
// `left`.
struct handler {
    __u64 key; // of the channel whose messages it has
    __u32 active;
    __u32 ended; // why it is active no more, by itself
    __u64 cost_ns;
    __u64 budget_ns;
    __u64 deadline_ns; // from the logical arrival; 0 if that is of another clock
    // The reply channel; without one `reply_most` is 0.
    __u64 reply_key;
    __be32 reply_channel;
    __u32 reply_most;
    __u32 reply_least;
    __u32 over; // which of the last sixteen runs took more than the budget, the last one in the lowest bit
    __u64 reply_every_ns;
    __u64 reply_ahead_ns; // so much before its logical arrival a reply may leave
    __u64 reply_next;     // the logical arrival of the next one at the earliest
    __u64 reply_sequence;
    // It has a message every so often, and so much too early; others go to the application's queue.
    __u64 every_ns;
    __u64 tolerance_ns;
    __u32 least; // bytes of the shortest message
    __u32 shared; // which words it has, and which order it keeps
    __u64 entered;
    __u64 left;
    // Counted.
    __u64 stale;
    __u64 runs;
    __u64 beyond;
    __u64 done;
    __u64 done_bytes;
    __u64 late;
    __u64 replies;
    __u64 reply_bytes;
    __u64 unsent;
    __u64 untold;
    __u64 over_cost;
    __u64 longest_ns;
    __u64 largest_ns;           // from the logical arrival
    __u64 took[BUCKETS];        // what runs took
    __u64 response[BUCKETS];    // from the call that sent it until done, if `deadline_ns` is set
};

// How far the messages of a channel are: of its handler, and of the one that takes the place of that, which may run beside it for a moment.
struct order {
    __u64 paid_until;
    __u64 next; // the number of the next message: earlier ones are copies, or overtaken
};

// program/handlers.rs asserts the same.
_Static_assert(sizeof(struct handler) == 240 + 16 * BUCKETS && sizeof(struct order) == 16, "as the loader has them");
IS_AT(handler, cost_ns, 16);
IS_AT(handler, reply_key, 40);
IS_AT(handler, reply_every_ns, 64);
IS_AT(handler, every_ns, 96);
IS_AT(handler, entered, 120);
IS_AT(handler, runs, 144);
IS_AT(handler, took, 240);
_Static_assert(sizeof(struct laxity_event) == 2976 && sizeof(struct data_header) == 52, "a reply follows its headers");

struct {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(map_flags, BPF_F_MMAPABLE);
    __uint(max_entries, HANDLERS);
    __type(key, __u32);
    __type(value, struct handler);
} handlers SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(map_flags, BPF_F_MMAPABLE);
    __uint(max_entries, HANDLED);
    __type(key, __u32);
    __type(value, __u64[LAXITY_WORDS]);
} words SEC(".maps");

// Beside the words, which are the application's to write.
struct {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(map_flags, BPF_F_MMAPABLE);
    __uint(max_entries, HANDLED);
    __type(key, __u32);
    __type(value, struct order);
} orders SEC(".maps");

// Which handler has the messages of a channel, from 1; 0: none. The last counts what handlers did in all.
struct {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(map_flags, BPF_F_MMAPABLE);
    __uint(max_entries, CHANNELS + 1);
    __type(key, __u32);
    __type(value, __u64);
} handled_by SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_PROG_ARRAY);
    __uint(max_entries, HANDLERS);
    __type(key, __u32);
    __type(value, __u32);
} programs SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
    __uint(max_entries, 1);
    __type(key, __u32);
    __type(value, struct laxity_event);
} events SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_RINGBUF);
    __uint(max_entries, 65536);
} notices SEC(".maps");

// The application's function stands in the place of this one, of which the compiler may know nothing.
__attribute__((weak)) int on_message(struct laxity_event *event, unsigned long long *own)
{
    own[0] = event->bytes;
    return LAXITY_DELIVER;
}

// As `Histogram` of the loader: linear in each octave, 8 buckets.
static __attribute__((always_inline)) __u32 bucket(__u64 nanos)
{
    if (nanos < 8)
        return nanos;
    __u64 rest = nanos;
    __u32 octave = 0;
#pragma unroll
    for (__u32 bits = 32; bits; bits /= 2)
        if (rest >> bits) {
            rest >>= bits;
            octave += bits;
        }
    octave -= 3;
    __u64 place = (octave + 1) * 8 + (nanos >> (octave & 63)) - 8;
    return place < BUCKETS ? place : BUCKETS - 1;
}

static __attribute__((always_inline)) void record(__u64 *buckets, __u64 nanos)
{
    __u32 place = bucket(nanos);
    // Where the verifier sees it.
    asm volatile("" : "+r"(place));
    if (place < BUCKETS)
        __sync_fetch_and_add(&buckets[place], 1);
}

// Processors may race for it; what one of them loses was hardly the largest.
static __attribute__((always_inline)) void raise(__u64 *largest, __u64 nanos)
{
    if (nanos > *(volatile __u64 *)largest)
        *(volatile __u64 *)largest = nanos;
}

static __attribute__((always_inline)) __u16 folded(__u64 sum)
{
#pragma unroll
    for (int times = 0; times < 4; times++)
        sum = (sum & 0xFFFF) + (sum >> 16);
    return sum;
}

// The logical arrival of a reply that is ready now, as the regulator of a sender has it [channels §2.2]; 0 if the contract has no room.
static __attribute__((always_inline)) __u64 regulate(struct handler *own, __u64 now)
{
#pragma unroll
    for (int attempt = 0; attempt < 3; attempt++) {
        __u64 next = *(volatile __u64 *)&own->reply_next;
        __u64 at = next > now ? next : now;
        if (at - now > own->reply_ahead_ns)
            return 0;
        if (__sync_val_compare_and_swap(&own->reply_next, next, at + own->reply_every_ns) == next)
            return at;
    }
    return 0;
}

// What is before the payload of a packet.
struct headers {
    struct udphdr udp;
    struct data_header data;
} __attribute__((packed, aligned(4)));

// Where the headers of a packet begin, and what they are.
struct layout {
    __u32 ip;
    __u32 udp;
    __u32 is_v6;
};

// The packet goes back where it came from, with `bytes` behind its UDP header: its UDP pseudo-header's sum, or -1.
static __attribute__((always_inline)) __s64 turn(struct xdp_md *context, const struct layout *at, __u32 bytes)
{
    __u8 ethernet[12], turned[12];
    if (load_bytes(context, 0, ethernet, sizeof(ethernet)))
        return -1;
    __builtin_memcpy(turned, ethernet + 6, 6);
    __builtin_memcpy(turned + 6, ethernet, 6);
    if (store_bytes(context, 0, turned, sizeof(turned)))
        return -1;
    __u32 datagram = bytes + sizeof(struct udphdr);
    __s64 sum;
    if (at->is_v6) {
        struct ipv6hdr header;
        if (load_bytes(context, at->ip, &header, sizeof(header)))
            return -1;
        struct in6_addr from = header.saddr;
        header.saddr = header.daddr;
        header.daddr = from;
        header.payload_len = be16(datagram);
        header.hop_limit = 64;
        sum = sum_of(0, 0, &header.saddr, 32, 0);
        if (store_bytes(context, at->ip, &header, sizeof(header)))
            return -1;
    } else {
        struct iphdr header;
        if (load_bytes(context, at->ip, &header, sizeof(header)))
            return -1;
        __be32 from = header.saddr;
        header.saddr = header.daddr;
        header.daddr = from;
        header.tot_len = be16(datagram + sizeof(header));
        header.id = 0;
        header.frag_off = be16(0x4000);
        header.ttl = 64;
        header.check = 0;
        header.check = ~folded(sum_of(0, 0, &header, sizeof(header), 0));
        sum = sum_of(0, 0, &header.saddr, 8, 0);
        if (store_bytes(context, at->ip, &header, sizeof(header)))
            return -1;
    }
    return (sum & 0xFFFFFFFF) + be16(IPPROTO_UDP) + be16(datagram);
}

// The sum of so many bytes of an event, at most 1536, of which up to three behind them are zero.
static __attribute__((always_inline)) __u64 sum_of_bytes(__u8 *from, __u32 bytes)
{
    __u64 sum = 0;
    bytes = (bytes + 3) & ~3U;
#pragma unroll
    for (__u32 begin = 0; begin < 1536; begin += 512) {
        __u32 part = bytes - begin;
        asm volatile("" : "+r"(part));
        if (bytes > begin && part > 512)
            part = 512;
        if (bytes > begin && part <= 512)
            sum += sum_of(0, 0, from + begin, part, 0) & 0xFFFFFFFF;
    }
    return sum;
}

// The packet becomes a reply; 0 if that was not to be.
static __attribute__((always_inline)) int reply(struct xdp_md *context, struct handler *own, struct laxity_event *event,
                                                const struct layout *at, const struct udphdr *came, __u64 now)
{
    __u32 bytes = event->reply_bytes;
    asm volatile("" : "+r"(bytes));
    if (bytes < 1 || bytes > LAXITY_MESSAGE || bytes > own->reply_most || bytes < own->reply_least)
        return 0;
    __u32 whole = sizeof(struct headers) + bytes;
    if (adjust_tail(context, (int)(at->udp + whole) - (int)length_of(context)))
        return 0;
    __s64 sum = turn(context, at, sizeof(struct data_header) + bytes);
    if (sum < 0)
        return 0;
    // It has a number only if it leaves.
    __u64 logical_arrival = regulate(own, now);
    if (!logical_arrival)
        return 0;
    struct headers headers = {
        .udp = {.source = came->dest, .dest = came->source, .len = be16(bytes + sizeof(struct udphdr) + sizeof(struct data_header))},
        .data =
            {
                .prefix = {.magic = be16(MAGIC), .major = MAJOR, .kind = DATA},
                .channel = own->reply_channel,
                .key = be64(own->reply_key),
                .sequence = be64(__sync_fetch_and_add(&own->reply_sequence, 1)),
                // Its host does not know here in which epoch of its clock that is.
                .priority_and_epoch = UNSURE_EPOCH,
                .logical_arrival = be64(logical_arrival),
                .bytes_less_one = {(bytes - 1) >> 16, (bytes - 1) >> 8, bytes - 1},
                .ahead = be32((__u32)((logical_arrival - now + 999) / 1000)),
            },
    };
    __builtin_memcpy(event->headers, &headers, sizeof(headers));
    // Zeros up to a whole word, which the sum is taken of.
    event->reply[bytes] = event->reply[bytes + 1] = event->reply[bytes + 2] = 0;
    __u16 check = ~folded((__u64)sum + sum_of_bytes(event->headers, whole));
    ((struct udphdr *)event->headers)->check = check ? check : 0xFFFF;
    asm volatile("" : "+r"(whole));
    if (whole > sizeof(event->headers) + LAXITY_MESSAGE || store_bytes(context, at->udp, event->headers, whole))
        return 0;
    __sync_fetch_and_add(&own->replies, 1);
    __sync_fetch_and_add(&own->reply_bytes, bytes);
    return 1;
}

// What took more than its budget twice in sixteen runs is active no more; once may have been the platform.
static __attribute__((always_inline)) void measure(struct handler *own, __u64 took)
{
    record(own->took, took);
    raise(&own->longest_ns, took);
    if (took > own->cost_ns)
        __sync_fetch_and_add(&own->over_cost, 1);
    __u32 over = (own->over << 1 | (took > own->budget_ns)) & 0xFFFF;
    if (over & (over - 1)) {
        own->ended = ENDED_OVER_BUDGET;
        own->active = 0;
    }
    own->over = over;
}

// Whether what came is what was sent: the sum of the UDP pseudo-header, the headers and the message. Zero says that there is none, in IPv4.
static __attribute__((always_inline)) int is_whole(struct xdp_md *context, const struct layout *at, struct headers *headers,
                                                   struct laxity_event *event, __u32 bytes)
{
    if (!headers->udp.check)
        return !at->is_v6;
    __u8 addresses[32];
    __s64 sum;
    if (at->is_v6) {
        if (load_bytes(context, at->ip + 8, addresses, 32))
            return 0;
        sum = sum_of(0, 0, addresses, 32, 0);
    } else {
        if (load_bytes(context, at->ip + 12, addresses, 8))
            return 0;
        sum = sum_of(0, 0, addresses, 8, 0);
    }
    event->message[bytes] = event->message[bytes + 1] = event->message[bytes + 2] = 0;
    __u64 all = (sum & 0xFFFFFFFF) + be16(IPPROTO_UDP) + headers->udp.len;
    all += sum_of(0, 0, headers, sizeof(*headers), 0) & 0xFFFFFFFF;
    return folded(all + sum_of_bytes(event->message, bytes)) == 0xFFFF;
}

// Whether a message is earlier than one before it. One that loses the race for that three times is not.
static __attribute__((always_inline)) int is_stale(struct order *order, __u64 sequence)
{
#pragma unroll
    for (int attempt = 0; attempt < 3; attempt++) {
        __u64 next = *(volatile __u64 *)&order->next;
        if (sequence < next)
            return 1;
        if (__sync_val_compare_and_swap(&order->next, next, sequence + 1) == next)
            return 0;
    }
    return 0;
}

// What becomes of a packet, and of its message.
static __attribute__((always_inline)) int handled(struct xdp_md *context, struct handler *own, __u64 arrived, __s64 clock_ahead)
{
    __u32 only = 0;
    struct laxity_event *event = lookup(&events, &only);
    __u8 ethernet[18];
    if (!event || load_bytes(context, 0, ethernet, sizeof(ethernet)))
        return pass();
    // As `judge` has found them.
    int is_tagged = *(__be16 *)(ethernet + 12) == be16(ETH_P_8021Q);
    __be16 protocol = is_tagged ? *(__be16 *)(ethernet + 16) : *(__be16 *)(ethernet + 12);
    struct layout at = {.ip = sizeof(struct ethhdr) + (is_tagged ? sizeof(struct vlan_header) : 0), .is_v6 = protocol == be16(ETH_P_IPV6)};
    at.udp = at.ip + (at.is_v6 ? sizeof(struct ipv6hdr) : sizeof(struct iphdr));
    struct headers headers;
    if (load_bytes(context, at.udp, &headers, sizeof(headers)))
        return pass();
    const struct data_header *header = &headers.data;
    __u32 place = be32(header->channel);
    const struct channel *channel = lookup(&channels, &place);
    if (!channel)
        return pass();
    __u32 class = channel->class < CLASSES ? channel->class : BEST_EFFORT;
    __u32 shares = own->shared;
    __u64 *shared = lookup(&words, &shares);
    struct order *order = lookup(&orders, &shares);
    __u32 bytes = be16(headers.udp.len) - sizeof(headers);
    asm volatile("" : "+r"(bytes));
    __u64 due = be64(header->logical_arrival), ahead = be32(header->ahead) * 1000ULL;
    // A message of several packets is none of a channel that has a handler; nor is one that the host would not take.
    if (!shared || !order || !own->active || own->key != be64(header->key) || bytes < 1 || bytes > LAXITY_MESSAGE || bytes < own->least ||
        message_bytes_of(header) != bytes || (own->deadline_ns && due > arrived + own->tolerance_ns))
        return give(context, class);
    if (!is_within(&order->paid_until, own->every_ns, own->tolerance_ns)) {
        __sync_fetch_and_add(&own->beyond, 1);
        return give(context, class);
    }
    if (load_bytes(context, at.udp + sizeof(headers), event->message, bytes) || !is_whole(context, &at, &headers, event, bytes))
        return give(context, class);
    if (is_stale(order, be64(header->sequence))) {
        __sync_fetch_and_add(&own->stale, 1);
        count(TAKEN);
        return XDP_DROP;
    }
    event->sequence = be64(header->sequence);
    event->sent = due - ahead;
    event->arrived = arrived;
    event->bytes = bytes;
    event->reply_bytes = 0;
    __u64 began = time_ns();
    int action = on_message(event, shared);
    __u64 ended = time_ns();
    __sync_fetch_and_add(&own->runs, 1);
    measure(own, ended - began);
    // From here on by the host's clock.
    ended += clock_ahead;
    if (action & LAXITY_DELIVER)
        return give(context, class);
    if (action & LAXITY_TELL) {
        __u32 told = __builtin_offsetof(struct laxity_event, message) + bytes;
        asm volatile("" : "+r"(told));
        if (told <= __builtin_offsetof(struct laxity_event, headers) && tell(&notices, event, told, 0))
            __sync_fetch_and_add(&own->untold, 1);
    }
    int is_reply = action & LAXITY_REPLY ? reply(context, own, event, &at, &headers.udp, ended) : 0;
    if (action & LAXITY_REPLY && !is_reply)
        __sync_fetch_and_add(&own->unsent, 1);
    if (own->deadline_ns) {
        // As much as the host believes.
        if (due + MOST_LATE_NS < arrived)
            due = arrived - MOST_LATE_NS;
        __u64 sent = due > ahead ? due - ahead : 0, took = ended > due ? ended - due : 0;
        record(own->response, ended > sent ? ended - sent : 0);
        raise(&own->largest_ns, took);
        if (took > own->deadline_ns)
            __sync_fetch_and_add(&own->late, 1);
    }
    __sync_fetch_and_add(&own->done_bytes, bytes);
    // The last: who sees it sees all that is above.
    __sync_fetch_and_add(&own->done, 1);
    __u32 all = CHANNELS;
    __u64 *so_far = lookup(&handled_by, &all);
    if (so_far)
        __sync_fetch_and_add(so_far, 1);
    count(TAKEN);
    return is_reply ? XDP_TX : XDP_DROP;
}

SEC("xdp")
int handle(struct xdp_md *context)
{
    __u64 arrived = time_ns();
    __u32 number, only = 0;
    asm volatile("%0 = %1" : "=r"(number) : "i"(OWN_NUMBER));
    struct handler *own = lookup(&handlers, &number);
    const struct settings *host = lookup(&settings, &only);
    if (!own || !host)
        return pass();
    __sync_fetch_and_add(&own->entered, 1);
    int verdict = handled(context, own, arrived + host->clock_ahead_ns, host->clock_ahead_ns);
    __sync_fetch_and_add(&own->left, 1);
    return verdict;
}
