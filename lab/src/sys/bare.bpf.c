// SPDX-License-Identifier: GPL-2.0-only OR MIT OR Apache-2.0
//
// The yardstick's program: every frame of a queue goes to that queue's socket. The least work that receives frames by
// AF_XDP; what demux.bpf.c does beyond it is what early demultiplexing costs. For benchmarks only.

#include <linux/bpf.h>

#define SEC(name) __attribute__((section(name), used))
#define __uint(name, value) int(*name)[value]
#define __type(name, value) typeof(value) *name

static long (*const redirect_map)(void *map, __u64 key, __u64 flags) = (void *)BPF_FUNC_redirect_map;

struct {
    __uint(type, BPF_MAP_TYPE_XSKMAP);
    __uint(max_entries, 64);
    __type(key, __u32);
    __type(value, __u32);
} sockets SEC(".maps");

SEC("xdp")
int redirect(struct xdp_md *context)
{
    return redirect_map(&sockets, context->rx_queue_index, XDP_PASS);
}

char license_of_program[] SEC("license") = "Dual MIT/GPL";
