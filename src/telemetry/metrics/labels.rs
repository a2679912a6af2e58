//! The labels of the metrics: which names each family is told apart by.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;

use crate::machine::Role;

use super::super::names::Name;

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(in crate::telemetry) struct VersionLabels {
    pub(in crate::telemetry) version: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(in crate::telemetry) struct DirectionLabels {
    pub(in crate::telemetry) direction: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(in crate::telemetry) struct DeadLetterLabels {
    pub(in crate::telemetry) vhost: Name,
    pub(in crate::telemetry) queue: Name,
    pub(in crate::telemetry) reason: &'static str,
    pub(in crate::telemetry) outcome: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(in crate::telemetry) struct UndeliveredLabels {
    pub(in crate::telemetry) vhost: Name,
    pub(in crate::telemetry) outcome: &'static str,
    pub(in crate::telemetry) cause: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(in crate::telemetry) struct RetryLabels {
    pub(in crate::telemetry) vhost: Name,
    pub(in crate::telemetry) queue: Name,
    pub(in crate::telemetry) outcome: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(in crate::telemetry) struct FallbackLabels {
    pub(in crate::telemetry) request: &'static str,
    pub(in crate::telemetry) cause: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(in crate::telemetry) struct CauseLabels {
    pub(in crate::telemetry) cause: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(in crate::telemetry) struct KindLabels {
    pub(in crate::telemetry) mode: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(in crate::telemetry) struct LimitLabels {
    pub(in crate::telemetry) limit: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(in crate::telemetry) struct ResourceLabels {
    pub(in crate::telemetry) resource: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(in crate::telemetry) struct SettingLabels {
    pub(in crate::telemetry) setting: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(in crate::telemetry) struct LegLabels {
    pub(in crate::telemetry) leg: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(in crate::telemetry) struct LinkLabels {
    pub(in crate::telemetry) vhost: Name,
    pub(in crate::telemetry) link: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(in crate::telemetry) struct VhostLabels {
    pub(in crate::telemetry) vhost: Name,
}

pub(in crate::telemetry) type VhostGauge = Family<VhostLabels, Gauge>;

// === impl LinkLabels ===

impl LinkLabels {
    pub(in crate::telemetry) fn new(vhost: &Name, role: Role) -> Self {
        Self {
            vhost: vhost.clone(),
            link: role.as_str(),
        }
    }
}
