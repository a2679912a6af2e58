//! dlx-proxy.
