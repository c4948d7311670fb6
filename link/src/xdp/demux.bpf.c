// SPDX-License-Identifier: GPL-2.0-only OR MIT OR Apache-2.0
//
// Early demultiplexing [rio §2.1]: whose packet is this? Decided in the driver, or as soon as the kernel has a buffer, before any
// protocol work.
//
//   not for our address and port                                        -> the kernel, untouched, by the path of its stream if it has one (steer.bpf.h)
//   ours, and no frame of ours; no such channel; beyond its contract    -> dropped here, counted by reason
//   everything else                                                     -> the socket of its class, on the queue where it came in
//
// What becomes of a packet, `EarlyDemux` of the fuzz targets says, too: a test gives both the same. What is policed here is coarser than
// what the host polices (it knows packets, no messages, and grants what a host that was stopped sends in a bunch), so that nothing
// is dropped here that the host would take. It bounds what a channel can cost: packets, and so the time to find them.
//
// Needs: a kernel with BPF links and XSKMAP (5.9), compare-and-exchange (5.12). Relies on: the interface leaves a VLAN's tag in the
// frame (`ethtool -K DEV rxvlan off`); what a device has taken off is not seen here.

#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/in6.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/udp.h>

#include "laxity-handler.h"

#define SEC(name) __attribute__((section(name), used))
#define __uint(name, value) int(*name)[value]
#define __type(name, value) typeof(value) *name
#define be16(x) __builtin_bswap16(x)
#define be32(x) __builtin_bswap32(x)
#define be64(x) __builtin_bswap64(x)

static void *(*const lookup)(void *map, const void *key) = (void *)BPF_FUNC_map_lookup_elem;
static __u64 (*const time_ns)(void) = (void *)BPF_FUNC_ktime_get_ns;
static long (*const adjust_meta)(struct xdp_md *context, int bytes) = (void *)BPF_FUNC_xdp_adjust_meta;
static __u64 (*const cgroup_of)(struct __sk_buff *packet) = (void *)BPF_FUNC_skb_cgroup_id;
static long (*const redirect_map)(void *map, __u64 key, __u64 flags) = (void *)BPF_FUNC_redirect_map;

// Most channels of an executive, queues of an interface, addresses of a host that are looked at; the loader has them, too.
#define CHANNELS 1024
#define QUEUES 64
#define ADDRESSES 64

// Classes, and the order of a queue's sockets.
enum { REAL_TIME, CONTROL, BEST_EFFORT, CLASSES };

// What became of a frame; the order of the counters.
enum {
    PASSED,       // not ours
    TAKEN,        // given to its class
    MALFORMED,    // for our port, and no frame of ours
    UNKNOWN,      // no such channel, another key, another sender
    TOO_LARGE,    // a message, or a fragment, that the channel cannot have
    OVER_RATE,    // more packets than the contract has
    OVER_CONTROL, // more control frames than are answered
    REASONS,
};

struct settings {
    __u16 port; // ours, as it stands in the packet
    __u16 vlan; // the only one that is ours, 0 for none
    __u8 mac[6]; // the interface's
    __u16 most; // bytes of the largest frame that a socket takes; longer ones are the kernel's
    __u32 unused;
    __u64 control_ns; // a control frame of peers without a channel may come every so often,
    __u64 control_tolerance_ns; // and so much too early
    __u64 peer_control_ns; // likewise of each peer that has one
    __u64 peer_control_tolerance_ns;
    __u8 address[16]; // one of ours: most hosts have no other, and need no table
    __s64 clock_ahead_ns; // of the clock of this program, by the host's time namespace
};

// What may arrive for a channel. The loader shares this memory: it clears `open` first and sets it last. Who reads it while it
// is written may drop a packet, and no peer sends any then: a peer learns the key later, or has heard that it holds no more.
struct channel {
    __u32 open;
    __u32 packet; // S
    __u64 key;
    __u8 peer[16]; // IPv4 addresses as ::ffff:a.b.c.d
    __u16 peer_port;
    __u16 class;
    __u32 max_message; // with what `decay` grants
    __u64 packet_ns;    // a packet may come every so often: I / N; 0 is not policed
    __u64 tolerance_ns; // and so much too early
};

struct sender {
    __u8 address[16];
    __u16 port;
    __u8 unused[6];
};

struct drops {
    __u64 too_large;
    __u64 over_rate;
};

// program/layout.rs asserts the same.
#define IS_AT(type, field, offset) _Static_assert(__builtin_offsetof(struct type, field) == (offset), "as the loader has it")
_Static_assert(sizeof(struct settings) == 72 && sizeof(struct channel) == 56, "as the loader has them");
_Static_assert(sizeof(struct sender) == 24 && sizeof(struct drops) == 16, "as the loader has them");
IS_AT(settings, vlan, 2);
IS_AT(settings, mac, 4);
IS_AT(settings, most, 10);
IS_AT(settings, control_ns, 16);
IS_AT(settings, peer_control_ns, 32);
IS_AT(settings, address, 48);
IS_AT(settings, clock_ahead_ns, 64);
IS_AT(channel, packet, 4);
IS_AT(channel, key, 8);
IS_AT(channel, peer, 16);
IS_AT(channel, peer_port, 32);
IS_AT(channel, class, 34);
IS_AT(channel, max_message, 36);
IS_AT(channel, packet_ns, 40);
IS_AT(channel, tolerance_ns, 48);
IS_AT(sender, port, 16);
IS_AT(drops, over_rate, 8);

struct {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(max_entries, 1);
    __type(key, __u32);
    __type(value, struct settings);
} settings SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_HASH);
    __uint(max_entries, ADDRESSES);
    __type(key, __u8[16]);
    __type(value, __u8);
} addresses SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(map_flags, BPF_F_MMAPABLE);
    __uint(max_entries, CHANNELS);
    __type(key, __u32);
    __type(value, struct channel);
} channels SEC(".maps");

// Until when each channel's packets are paid for; the last is that of control frames of unknown peers.
struct {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(map_flags, BPF_F_MMAPABLE);
    __uint(max_entries, CHANNELS + 1);
    __type(key, __u32);
    __type(value, __u64);
} paid_until SEC(".maps");

// Until when the control frames of each peer with a channel are paid for: no unknown peer can make its leases expire.
struct {
    __uint(type, BPF_MAP_TYPE_HASH);
    __uint(max_entries, CHANNELS);
    __type(key, struct sender);
    __type(value, __u64);
} peers SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
    __uint(max_entries, REASONS);
    __type(key, __u32);
    __type(value, __u64);
} reasons SEC(".maps");

// What each channel lost as beyond its contract; the last is that of all. The loader reads it without a system call.
struct {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(map_flags, BPF_F_MMAPABLE);
    __uint(max_entries, CHANNELS + 1);
    __type(key, __u32);
    __type(value, struct drops);
} dropped SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_XSKMAP);
    __uint(max_entries, QUEUES * CLASSES);
    __type(key, __u32);
    __type(value, __u32);
} sockets SEC(".maps");

struct vlan_header {
    __be16 tag;
    __be16 protocol;
};

// A frame of ours, as docs/wire.md has it.
struct prefix {
    __be16 magic;
    __u8 major;
    __u8 kind;
} __attribute__((packed, aligned(2)));

struct data_header {
    struct prefix prefix;
    __be32 channel;
    __be64 key;
    __be64 sequence;
    __be64 logical_arrival;
    __u8 bytes_less_one[3];
    __u8 priority_and_epoch;
    __be16 index;
    __be16 stolen;
    __be32 deadline;
    __be32 waited;
    __be32 ahead;
} __attribute__((packed, aligned(2)));

enum {
    MAGIC = 0x4C58,
    MAJOR = 3,
    UNSURE_EPOCH = 7,
    DATA = 1,
    CONTROL_FRAME = 2,
    TAGGED = 3, // as DATA, with a tag behind the payload
    TAG_BYTES = 8,
    MAX_DEADLINE_MICROS = 3600000000,
    MAX_PACKET_BYTES = 8900,
    EXTENSIONS = 4, // extension headers of IPv6 that are followed
};

static __attribute__((always_inline)) __u32 message_bytes_of(const struct data_header *header)
{
    return (header->bytes_less_one[0] << 16 | header->bytes_less_one[1] << 8 | header->bytes_less_one[2]) + 1;
}

// Where a packet came from, and what it carries.
struct datagram {
    struct sender from __attribute__((aligned(8)));
    __u32 bytes;
};

static __attribute__((always_inline)) void count(__u32 reason)
{
    __u64 *counter = lookup(&reasons, &reason);
    if (counter)
        *counter += 1;
}

static __attribute__((always_inline)) int drop(__u32 reason)
{
    count(reason);
    return XDP_DROP;
}

// Drops what is beyond the contract of the channel at `place`.
static __attribute__((always_inline)) int police(__u32 place, __u32 reason)
{
    __u32 total = CHANNELS;
    struct drops *own = lookup(&dropped, &place), *all = lookup(&dropped, &total);
    if (own && all) {
        __sync_fetch_and_add(reason == TOO_LARGE ? &own->too_large : &own->over_rate, 1);
        __sync_fetch_and_add(reason == TOO_LARGE ? &all->too_large : &all->over_rate, 1);
    }
    return drop(reason);
}

static __attribute__((always_inline)) int pass(void)
{
    count(PASSED);
    return XDP_PASS;
}

// When a frame was seen, for the program that reads it: in front of it, where the device has room for that. region.rs has the same.
#define STAMP_SIGN 0x4C58537461ULL
struct stamp {
    __u64 sign;
    __u64 nanos; // CLOCK_MONOTONIC of the first time namespace: the reader knows how far its own is ahead
};

// Whether one more is within `every` and `tolerance`: a virtual clock that each packet moves on by its share of the rate. Several
// queues may race for it; who loses three times is let through, which the host's own policing makes up for.
static __attribute__((always_inline)) int is_within(__u64 *until, __u64 every, __u64 tolerance)
{
    if (!until || !every)
        return 1;
    __u64 now = time_ns();
#pragma unroll
    for (int attempt = 0; attempt < 3; attempt++) {
        __u64 before = *(volatile __u64 *)until;
        __u64 from = before > now ? before : now;
        if (from - now > tolerance)
            return 0;
        if (__sync_val_compare_and_swap(until, before, from + every) == before)
            return 1;
    }
    return 1;
}

static __attribute__((always_inline)) int give(struct xdp_md *context, __u32 class)
{
    if (context->rx_queue_index >= QUEUES)
        return pass();
    // A device that has no room for a stamp changes nothing. From here on no code looks at the packet, which may have moved.
    if (!adjust_meta(context, -(int)sizeof(struct stamp))) {
        struct stamp *stamp = (void *)(long)context->data_meta;
        if ((void *)(stamp + 1) <= (void *)(long)context->data) {
            stamp->sign = STAMP_SIGN;
            stamp->nanos = time_ns();
        }
    }
    // Without a socket on this queue it is the kernel's, whose socket of our port takes it.
    long verdict = redirect_map(&sockets, context->rx_queue_index * CLASSES + class, XDP_PASS);
    count(verdict == XDP_REDIRECT ? TAKEN : PASSED);
    return verdict;
}

#include "handle.bpf.h"

static __attribute__((always_inline)) int control(struct xdp_md *context, const struct settings *own,
                                                  const struct datagram *datagram)
{
    __u32 unknown = CHANNELS;
    __u64 *until = lookup(&peers, &datagram->from);
    int is_paid = until ? is_within(until, own->peer_control_ns, own->peer_control_tolerance_ns)
                        : is_within(lookup(&paid_until, &unknown), own->control_ns, own->control_tolerance_ns);
    return is_paid ? give(context, CONTROL) : drop(OVER_CONTROL);
}

static __attribute__((always_inline)) int is_same(const __u8 *one, const __u8 *other)
{
    const __u64 *a = (const void *)one, *b = (const void *)other;
    return a[0] == b[0] && a[1] == b[1];
}

static __attribute__((always_inline)) int is_ours(const struct settings *own, const __u8 *address)
{
    return is_same(own->address, address) || lookup(&addresses, address);
}

static __attribute__((always_inline)) int data(struct xdp_md *context, const struct data_header *header,
                                               const struct datagram *datagram)
{
    __u32 message_bytes = message_bytes_of(header);
    __u32 before = sizeof(*header) + (header->prefix.kind == TAGGED ? TAG_BYTES : 0);
    // Where it is shorter this is beyond all packets.
    __u32 payload = datagram->bytes - before;
    if (!payload || payload > MAX_PACKET_BYTES || payload > message_bytes || be32(header->deadline) > MAX_DEADLINE_MICROS)
        return drop(MALFORMED);
    __u32 place = be32(header->channel);
    // The loader opens no channel beyond the table's end.
    const struct channel *channel = lookup(&channels, &place);
    if (!channel || !channel->open || channel->key != be64(header->key) || channel->peer_port != datagram->from.port ||
        !is_same(channel->peer, datagram->from.address))
        return drop(UNKNOWN);
    // As DataHeader::check: the fragment begins at index · S, and is S bytes or what is left.
    __u64 begin = (__u64)be16(header->index) * channel->packet;
    __u64 left = begin < message_bytes ? message_bytes - begin : 0;
    if (message_bytes > channel->max_message || payload != (left < channel->packet ? left : channel->packet))
        return police(place, TOO_LARGE);
    if (!is_within(lookup(&paid_until, &place), channel->packet_ns, channel->tolerance_ns))
        return police(place, OVER_RATE);
    __u64 *handler = lookup(&handled_by, &place);
    // Where there is no such program it goes on here.
    if (handler && *handler && header->prefix.kind == DATA)
        call_instead(context, &programs, *handler - 1);
    return give(context, channel->class < CLASSES ? channel->class : BEST_EFFORT);
}

// What is in a datagram for our port.
static __attribute__((always_inline)) int frame(struct xdp_md *context, const void *start, const void *end,
                                                const struct settings *own, const struct datagram *datagram)
{
    const struct prefix *prefix = start;
    if (datagram->bytes < sizeof(*prefix) || (const void *)(prefix + 1) > end || prefix->magic != be16(MAGIC))
        return drop(MALFORMED);
    // Whatever version it is of: the host answers.
    if (prefix->kind == CONTROL_FRAME)
        return control(context, own, datagram);
    const struct data_header *header = start;
    if ((prefix->kind != DATA && prefix->kind != TAGGED) || prefix->major != MAJOR || datagram->bytes < sizeof(*header) || (const void *)(header + 1) > end)
        return drop(MALFORMED);
    return data(context, header, datagram);
}

// What no peer ever sends: longer than a frame of ours, or to a group of hosts.
static __attribute__((always_inline)) int is_foreign(struct xdp_md *context, const struct settings *own)
{
    const __u8 *end = (const void *)(long)context->data_end;
    const struct ethhdr *ethernet = (const void *)(long)context->data;
    return (const void *)(ethernet + 1) > (const void *)end || ethernet->h_dest[0] & 1 || (const __u8 *)ethernet + own->most < end;
}

// A datagram whose header is not where those of our peers are: in fragments, or behind options or extension headers. For our port it
// is not of a known peer; what has no ports is the kernel's, which can make nothing of it without what was dropped.
static __attribute__((always_inline)) int odd(const void *start, const void *end, const struct settings *own)
{
    const struct udphdr *header = start;
    return (const void *)(header + 1) > end || header->dest != own->port ? pass() : drop(MALFORMED);
}

// A datagram of `bytes`, its header included. What is shorter than it says is the kernel's to drop.
static __attribute__((always_inline)) int udp(struct xdp_md *context, const void *start, const void *end, __u64 bytes,
                                              const struct settings *own, struct datagram *datagram)
{
    const struct udphdr *header = start;
    if (bytes < sizeof(*header) || (const void *)(header + 1) > end || header->dest != own->port)
        return pass();
    __u32 length = be16(header->len);
    if (length < sizeof(*header) || length > bytes)
        return pass();
    if (is_foreign(context, own))
        return drop(MALFORMED);
    datagram->from.port = header->source;
    datagram->bytes = length - sizeof(*header);
    return frame(context, header + 1, end, own, datagram);
}

#include "probe.bpf.h"

static __attribute__((always_inline)) int ipv4(struct xdp_md *context, const void *start, const void *end,
                                               const struct settings *own)
{
    const struct iphdr *header = start;
    if ((const void *)(header + 1) > end || header->version != 4 || header->ihl < 5)
        return pass();
    if (header->protocol == IPPROTO_ICMP && header->ihl == 5)
        return turn_back(context, 0, (const __u8 *)&header->saddr, (const __u8 *)&header->daddr, header + 1, end);
    if (header->protocol != IPPROTO_UDP)
        return pass();
    // No sender that could be answered: this network, loopback, groups, broadcast. The kernel knows what to do.
    __u8 network = *(const __u8 *)&header->saddr;
    if (network == 0 || network == 127 || network >= 224)
        return pass();
    struct datagram datagram = {.from.address = {[10] = 0xFF, [11] = 0xFF}};
    __u8 to[16] __attribute__((aligned(8))) = {[10] = 0xFF, [11] = 0xFF};
    __builtin_memcpy(datagram.from.address + 12, &header->saddr, 4);
    __builtin_memcpy(to + 12, &header->daddr, 4);
    if (!is_ours(own, to))
        return pass();
    if (header->ihl != 5 || header->frag_off & be16(0x3FFF))
        return header->frag_off & be16(0x1FFF) ? pass() : odd((const __u8 *)start + header->ihl * 4, end, own);
    __u32 total = be16(header->tot_len);
    // The bound has to stand in the code, where the verifier sees it.
    asm volatile("" : "+r"(total));
    total &= 0xFFFF;
    if (total < sizeof(*header) || (const __u8 *)start + total > (const __u8 *)end)
        return pass();
    __u32 sum = 0;
    const __u16 *words = start;
#pragma unroll
    for (int place = 0; place < 10; place++)
        sum += words[place];
    sum = (sum & 0xFFFF) + (sum >> 16);
    if (((sum & 0xFFFF) + (sum >> 16)) != 0xFFFF)
        return pass();
    return udp(context, header + 1, end, total - sizeof(*header), own, &datagram);
}

// ::/80, where no host's own address lies.
static __attribute__((always_inline)) int is_reserved(const struct in6_addr *address)
{
    const __u16 *words = (const void *)address;
    return !(words[0] | words[1] | words[2] | words[3] | words[4]);
}

// Behind extension headers, as far as they are followed here.
static __attribute__((always_inline)) int extended(__u8 kind, const void *start, const void *end, const struct settings *own)
{
    const __u8 *header = start;
#pragma unroll
    for (int count = 0; count < EXTENSIONS; count++) {
        if (kind == IPPROTO_UDP)
            return odd(header, end, own);
        if (header + 8 > (const __u8 *)end)
            return pass();
        if (kind == IPPROTO_FRAGMENT) {
            // Later ones have no ports.
            if (header[2] || header[3] & 0xF8)
                return pass();
            kind = header[0];
            header += 8;
        } else if (kind == IPPROTO_HOPOPTS || kind == IPPROTO_ROUTING || kind == IPPROTO_DSTOPTS) {
            kind = header[0];
            header += 8 + 8 * header[1];
        } else {
            return pass();
        }
    }
    return kind == IPPROTO_UDP ? odd(header, end, own) : pass();
}

static __attribute__((always_inline)) int ipv6(struct xdp_md *context, const void *start, const void *end,
                                               const struct settings *own)
{
    const struct ipv6hdr *header = start;
    if ((const void *)(header + 1) > end || header->version != 6)
        return pass();
    // Likewise: unspecified, loopback, groups. And ::ffff:a.b.c.d is a form of ours for IPv4, and no address of IPv6's.
    if (is_reserved(&header->saddr) || is_reserved(&header->daddr) || header->saddr.s6_addr[0] == 0xFF)
        return pass();
    struct datagram datagram = {};
    __u8 to[16] __attribute__((aligned(8)));
    __builtin_memcpy(datagram.from.address, &header->saddr, 16);
    __builtin_memcpy(to, &header->daddr, 16);
    if (!is_ours(own, to))
        return pass();
    if (header->nexthdr == IPPROTO_ICMPV6)
        return turn_back(context, 1, header->saddr.s6_addr, header->daddr.s6_addr, header + 1, end);
    if (header->nexthdr != IPPROTO_UDP)
        return extended(header->nexthdr, header + 1, end, own);
    __u32 bytes = be16(header->payload_len);
    asm volatile("" : "+r"(bytes));
    bytes &= 0xFFFF;
    if ((const __u8 *)(header + 1) + bytes > (const __u8 *)end)
        return pass();
    return udp(context, header + 1, end, bytes, own, &datagram);
}

#include "steer.bpf.h"

static __attribute__((always_inline)) int judge(struct xdp_md *context)
{
    const void *end = (const void *)(long)context->data_end;
    const struct ethhdr *ethernet = (const void *)(long)context->data;
    __u32 only = 0;
    const struct settings *own = lookup(&settings, &only);
    if (!own || (const void *)(ethernet + 1) > end)
        return pass();
    // To no other host; what is to a group may be for our port all the same.
    int is_group = ethernet->h_dest[0] & 1;
#pragma unroll
    for (int place = 0; place < 6; place++)
        if (ethernet->h_dest[place] != own->mac[place] && !is_group)
            return pass();
    const void *start = ethernet + 1;
    __be16 protocol = ethernet->h_proto;
    __u16 vlan = 0;
    if (protocol == be16(ETH_P_8021Q)) {
        const struct vlan_header *tagged = start;
        if ((const void *)(tagged + 1) > end)
            return pass();
        vlan = be16(tagged->tag) & 0xFFF;
        protocol = tagged->protocol;
        start = tagged + 1;
    }
    if (vlan != own->vlan)
        return pass();
    if (protocol == be16(ETH_P_IP))
        return ipv4(context, start, end, own);
    if (protocol == be16(ETH_P_IPV6))
        return ipv6(context, start, end, own);
    return pass();
}

SEC("xdp")
int demultiplex(struct xdp_md *context)
{
    int verdict = judge(context);
    return verdict == XDP_PASS ? steer(context) : verdict;
}

// The guard's (netlink/guard.rs): a packet that names a class of it by itself is Laxity's.
#define GUARD 0x4C58

// A packet of a stream that leaves is of its class. Whatever else looks at it does so as before.
SEC("classifier")
int classify(struct __sk_buff *packet)
{
    __u32 only = 0;
    struct steering *own = lookup(&steering, &only);
    struct flow flow = {};
    if (!own || !own->streams || packet->priority >> 16 == GUARD || !dissect(&flow, (void *)(long)packet->data, (void *)(long)packet->data_end))
        return -1;
    for (__u32 place = 0; place < STREAMS; place++) {
        const struct stream *stream = &own->stream[place];
        if (place >= own->streams)
            break;
        __u64 cgroup = stream->known_by & CGROUP ? cgroup_of(packet) : 0;
        if (!is_of(stream, &flow, 0, cgroup))
            continue;
        if (stream->class)
            packet->priority = stream->class;
        break;
    }
    return -1; // TC_ACT_UNSPEC: the next program has it
}

char license_of_program[] SEC("license") = "Dual MIT/GPL";
