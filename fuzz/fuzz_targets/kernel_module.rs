#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| laxity_fuzz::demux::kernel_module(data));
