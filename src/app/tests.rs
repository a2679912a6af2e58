//! The API as the wiring makes it, for the tests of the console.

use super::*;
use crate::console::admin::Api;

pub(crate) fn api(config: &Config) -> (Api, Metrics) {
    let (metrics, drain) = (Metrics::new(), Drain::new(Duration::ZERO));
    let tls = &config.reloadable.tls;
    let certificates = Certificates::load(tls, config.tls_uses(), metrics.clone());
    let certificates = certificates.map_err(BindError::certificates);
    let shared = Shared::new(config, &drain, certificates.expect("none"), metrics.clone());
    let thread = Background::start("redrives", 0).expect("a thread");
    (shared.api(shared.walks(&shared.hub(), thread)), metrics)
}
