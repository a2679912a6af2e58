//! dlx-proxy: arguments → logging → config → app. Exit codes live here only.

fn main() {}
