//! What a recorder is told when it is made.

use crate::amqp::ids::ShortStr;
use crate::link::Login;
use crate::registry::live::LivePolicies;
use crate::registry::policy::Declares;

/// The settings of a recorder.
#[derive(Clone, Debug)]
pub struct Settings {
    pub login: Login,
    /// The name of the stream.
    pub stream: ShortStr,
    /// `declares`, for queues whose policy does not say.
    pub declares: Declares,
    /// Where what is read counts, and what is written stands.
    pub policies: LivePolicies,
}

// === impl Settings ===

impl Settings {
    /// Whether declares of some queue may differ from it.
    pub(super) fn are_lenient(&self) -> bool {
        self.declares == Declares::Lenient || self.policies.ours().any_is_lenient()
    }
}
