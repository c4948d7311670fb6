// SPDX-License-Identifier: GPL-2.0-only OR MIT OR Apache-2.0
// Lets every frame pass. Where it is attached a virtual pair looks at frames one by one, as a device does, and takes those that the program at its
// other end sends back.

#include <linux/bpf.h>

__attribute__((section("xdp"), used)) int pass(struct xdp_md *context)
{
    return context->data <= context->data_end ? XDP_PASS : XDP_ABORTED;
}

char license_of_program[] __attribute__((section("license"), used)) = "Dual MIT/GPL";
