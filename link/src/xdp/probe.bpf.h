// SPDX-License-Identifier: GPL-2.0-only OR MIT OR Apache-2.0
//
// Whether what is sent back from here arrives: an answer to an echo request of the loader's (probe.rs) is turned into such a request and sent back, once.
// If that arrives, it is answered, too.

enum { ECHO_REPLY = 0, ECHO_REQUEST = 8, ECHO_REQUEST_V6 = 128, ECHO_REPLY_V6 = 129 };

struct echo {
    __u8 type;
    __u8 code;
    __u16 check;
    __u16 id; // as it lies in the packet
    __u16 sequence;
};

// The number of the echo that is to be turned, as it lies in the packet, above a bit that says that it is still to come; 0: none.
struct {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(map_flags, BPF_F_MMAPABLE);
    __uint(max_entries, 1);
    __type(key, __u32);
    __type(value, __u64);
} probing SEC(".maps");

static __attribute__((always_inline)) void swap_words(__u16 *one, __u16 *other, int count)
{
#pragma unroll
    for (int place = 0; place < count; place++) {
        __u16 kept = one[place];
        one[place] = other[place];
        other[place] = kept;
    }
}

static __attribute__((always_inline)) int turn_back(struct xdp_md *context, int is_v6, const __u8 *from, const __u8 *to, const void *start, const void *end)
{
    struct echo *echo = (void *)start;
    struct ethhdr *ethernet = (void *)(long)context->data;
    __u32 only = 0;
    __u64 *awaited = lookup(&probing, &only);
    if (!awaited || !*awaited || (const void *)(echo + 1) > end || (const void *)(ethernet + 1) > end)
        return pass();
    __u64 one = (__u64)echo->id << 1 | 1;
    if (echo->type != (is_v6 ? ECHO_REPLY_V6 : ECHO_REPLY) || echo->code || __sync_val_compare_and_swap(awaited, one, one & ~1ULL) != one)
        return pass();
    // One's complement: what the type loses the sum gains. Addresses change places, and no sum.
    __u32 sum = echo->check;
    if (is_v6) {
        echo->type = ECHO_REQUEST_V6;
        sum += be16((ECHO_REPLY_V6 - ECHO_REQUEST_V6) << 8);
    } else {
        echo->type = ECHO_REQUEST;
        sum += 0xFFFF - be16((ECHO_REQUEST - ECHO_REPLY) << 8);
    }
    sum = (sum & 0xFFFF) + (sum >> 16);
    echo->check = (sum & 0xFFFF) + (sum >> 16);
    swap_words((__u16 *)from, (__u16 *)to, is_v6 ? 8 : 2);
    swap_words((__u16 *)ethernet->h_dest, (__u16 *)ethernet->h_source, 3);
    return XDP_TX;
}
