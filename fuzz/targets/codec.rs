#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| dlx_proxy_fuzz::codec(data));
