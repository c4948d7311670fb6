// SPDX-License-Identifier: GPL-2.0-only OR MIT OR Apache-2.0
//
// Streams [rio §2.0.1]: flows of the kernel's own sockets whose packets have a kernel thread of their own, with a priority of its own.
//
//   in    a packet that demux.bpf.c leaves to the kernel: its stream's path, an entry of a cpumap; else that of all others, if they have one
//   out   the class of its stream, as the packet's priority, by which an htb finds it
//
// The first stream whose flow it is of has a packet. A stream polices packets by the same virtual clock as a channel does.

// Most streams of an interface, and their paths; the loader has them, too.
#define STREAMS 8

// What a flow is known by; of a stream, which of these count.
enum { LOCAL = 1, REMOTE = 2, LOCAL_PORT = 4, REMOTE_PORT = 8, PROTOCOL = 16, DSCP = 32, CGROUP = 64 };

// The loader shares this memory: it clears `known_by` first and sets it last.
struct stream {
    __u32 known_by; // 0: no stream
    __u32 processor; // of its kernel thread
    __u8 local[16]; // IPv4 addresses as ::ffff:a.b.c.d
    __u8 remote[16];
    __u16 local_port; // as they stand in the packet
    __u16 remote_port;
    __u8 protocol;
    __u8 dscp;
    __u16 is_dropped; // what is beyond the next two; else it is counted alone
    __u64 packet_ns; // 0 is not policed
    __u64 tolerance_ns;
    __u64 paid_until;
    __u64 packets;
    __u64 excess;
    __u64 cgroup; // known of outgoing packets alone
    __u32 class; // 0 has none
    __u32 unused;
};

struct steering {
    __u32 streams; // places in use are below
    __u32 others; // the processor of the path of all others and one; 0 if they have none
    __u16 own_port; // Laxity's, as it stands in the packet: what comes to it by UDP is of no stream, and not others'
    __u16 unused[3];
    struct stream stream[STREAMS];
};

_Static_assert(sizeof(struct stream) == 104 && sizeof(struct steering) == 16 + STREAMS * 104, "as the loader has them");
IS_AT(stream, local, 8);
IS_AT(stream, remote, 24);
IS_AT(stream, local_port, 40);
IS_AT(stream, protocol, 44);
IS_AT(stream, is_dropped, 46);
IS_AT(stream, packet_ns, 48);
IS_AT(stream, paid_until, 64);
IS_AT(stream, packets, 72);
IS_AT(stream, excess, 80);
IS_AT(stream, cgroup, 88);
IS_AT(stream, class, 96);

struct {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(map_flags, BPF_F_MMAPABLE);
    __uint(max_entries, 1);
    __type(key, __u32);
    __type(value, struct steering);
} steering SEC(".maps");

struct path {
    __u32 queue;
    __u32 program;
};

// One map for each, since an entry is known by its processor. The loader has as many entries as there are processors.
#define PATH(name)                            \
    struct {                                  \
        __uint(type, BPF_MAP_TYPE_CPUMAP);    \
        __uint(max_entries, 1);               \
        __type(key, __u32);                   \
        __type(value, struct path);           \
    } name SEC(".maps")
PATH(path_0);
PATH(path_1);
PATH(path_2);
PATH(path_3);
PATH(path_4);
PATH(path_5);
PATH(path_6);
PATH(path_7);
PATH(path_of_others);

// What a packet is known by: [0] is who sent it, [1] to whom.
struct flow {
    __u8 address[2][16] __attribute__((aligned(8)));
    __u16 port[2];
    __u8 protocol;
    __u8 dscp;
    __u8 has_ports;
};

static __attribute__((always_inline)) int ports(struct flow *flow, const void *start, const void *end)
{
    const __u16 *ports = start;
    flow->has_ports = (flow->protocol == IPPROTO_TCP || flow->protocol == IPPROTO_UDP) && (const void *)(ports + 2) <= end;
    if (flow->has_ports) {
        flow->port[0] = ports[0];
        flow->port[1] = ports[1];
    }
    return 1;
}

// Whether it is a packet of IP whose headers stand where they usually do; fragments and packets with extension headers have no ports.
static __attribute__((always_inline)) int dissect(struct flow *flow, const void *start, const void *end)
{
    const struct ethhdr *ethernet = start;
    if ((const void *)(ethernet + 1) > end)
        return 0;
    __be16 protocol = ethernet->h_proto;
    start = ethernet + 1;
    if (protocol == be16(ETH_P_8021Q)) {
        const struct vlan_header *tagged = start;
        if ((const void *)(tagged + 1) > end)
            return 0;
        protocol = tagged->protocol;
        start = tagged + 1;
    }
    if (protocol == be16(ETH_P_IP)) {
        const struct iphdr *header = start;
        if ((const void *)(header + 1) > end || header->version != 4)
            return 0;
        flow->address[0][10] = flow->address[0][11] = flow->address[1][10] = flow->address[1][11] = 0xFF;
        __builtin_memcpy(flow->address[0] + 12, &header->saddr, 4);
        __builtin_memcpy(flow->address[1] + 12, &header->daddr, 4);
        flow->protocol = header->protocol;
        flow->dscp = header->tos >> 2;
        return header->ihl != 5 || header->frag_off & be16(0x3FFF) ? 1 : ports(flow, header + 1, end);
    }
    if (protocol == be16(ETH_P_IPV6)) {
        const struct ipv6hdr *header = start;
        if ((const void *)(header + 1) > end || header->version != 6)
            return 0;
        __builtin_memcpy(flow->address[0], &header->saddr, 16);
        __builtin_memcpy(flow->address[1], &header->daddr, 16);
        flow->protocol = header->nexthdr;
        flow->dscp = header->priority << 2 | header->flow_lbl[0] >> 6;
        return ports(flow, header + 1, end);
    }
    return 0;
}

// `local` is the index of this host's address and port.
static __attribute__((always_inline)) int is_of(const struct stream *stream, const struct flow *flow, int local, __u64 cgroup)
{
    __u32 by = stream->known_by;
    if (!by)
        return 0;
    if (by & (LOCAL_PORT | REMOTE_PORT) && !flow->has_ports)
        return 0;
    if (by & LOCAL_PORT && stream->local_port != flow->port[local])
        return 0;
    if (by & REMOTE_PORT && stream->remote_port != flow->port[!local])
        return 0;
    if (by & PROTOCOL && stream->protocol != flow->protocol)
        return 0;
    if (by & DSCP && stream->dscp != flow->dscp)
        return 0;
    if (by & LOCAL && !is_same(stream->local, flow->address[local]))
        return 0;
    if (by & REMOTE && !is_same(stream->remote, flow->address[!local]))
        return 0;
    // Zero is no control group: what comes in has none yet.
    return !(by & CGROUP) || (cgroup && stream->cgroup == cgroup);
}

static __attribute__((always_inline)) int to_path(__u32 place, __u64 processor)
{
    switch (place) {
    case 0:
        return redirect_map(&path_0, processor, XDP_PASS);
    case 1:
        return redirect_map(&path_1, processor, XDP_PASS);
    case 2:
        return redirect_map(&path_2, processor, XDP_PASS);
    case 3:
        return redirect_map(&path_3, processor, XDP_PASS);
    case 4:
        return redirect_map(&path_4, processor, XDP_PASS);
    case 5:
        return redirect_map(&path_5, processor, XDP_PASS);
    case 6:
        return redirect_map(&path_6, processor, XDP_PASS);
    case 7:
        return redirect_map(&path_7, processor, XDP_PASS);
    default:
        return XDP_PASS;
    }
}

// The way in of a packet that is the kernel's.
static __attribute__((always_inline)) int steer(struct xdp_md *context)
{
    __u32 only = 0;
    struct steering *own = lookup(&steering, &only);
    if (!own || !(own->streams | own->others))
        return XDP_PASS;
    struct flow flow = {};
    if (dissect(&flow, (void *)(long)context->data, (void *)(long)context->data_end)) {
        if (flow.has_ports && flow.protocol == IPPROTO_UDP && flow.port[1] == own->own_port)
            return XDP_PASS;
        for (__u32 place = 0; place < STREAMS; place++) {
            struct stream *stream = &own->stream[place];
            if (place >= own->streams)
                break;
            if (!is_of(stream, &flow, 1, 0))
                continue;
            __sync_fetch_and_add(&stream->packets, 1);
            if (!is_within(&stream->paid_until, stream->packet_ns, stream->tolerance_ns)) {
                __sync_fetch_and_add(&stream->excess, 1);
                if (stream->is_dropped)
                    return XDP_DROP;
            }
            return to_path(place, stream->processor);
        }
    }
    return own->others ? redirect_map(&path_of_others, own->others - 1, XDP_PASS) : XDP_PASS;
}
