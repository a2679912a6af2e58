//! Placeholder until the registry lands.
#![allow(missing_docs)]
use crate::amqp::ids::ShortStr;
use crate::dead_letter::Target;
use crate::machine::Mono;
use std::collections::BTreeMap;
#[derive(Debug, Default)]
pub struct Registry(BTreeMap<ShortStr, (Known, Mono)>);
#[derive(Debug)]
pub struct Known {
    pub target: Target,
}
impl Registry {
    pub fn get(&self, q: &ShortStr) -> Option<&Known> {
        self.0.get(q).map(|k| &k.0)
    }
    pub fn insert(&mut self, q: ShortStr, target: Target, _t: bool, now: Mono) {
        self.0.insert(q, (Known { target }, now));
    }
    pub fn forget(&mut self, q: &ShortStr) {
        self.0.remove(q);
    }
    pub fn is_fresh(&self, q: &ShortStr, now: Mono) -> bool {
        self.0.get(q).is_some_and(|k| now.mono_lt(k.1))
    }
}
impl Mono {
    fn mono_lt(self, since: Mono) -> bool {
        self.0 < since.0 + 60_000_000
    }
}
pub mod intake_name {
    #[derive(Clone, Debug, Default)]
    pub struct Names;
    impl Names {
        pub fn is_ours(&self, _n: &[u8]) -> bool {
            false
        }
    }
}
pub mod policy {
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum Mode {
        Takeover,
        Keep,
    }
    #[derive(Debug, Default)]
    pub struct Policies;
    #[derive(Debug)]
    pub struct Policy {
        pub mode: Option<Mode>,
    }
    impl Policies {
        pub fn matching(&self, _v: &[u8], _q: &[u8], _t: Option<&[u8]>) -> Option<&Policy> {
            None
        }
    }
}
pub mod arguments {
    use super::*;
    use crate::machine::Fallback;
    pub enum Wanted {
        Nothing,
        Leave(Fallback),
        Keep(Target),
        TakeOver { target: Target, intake: ShortStr },
    }
    pub struct DeclareArguments<'a>(&'a [u8]);
    impl<'a> DeclareArguments<'a> {
        pub fn read(a: &'a [u8]) -> Self {
            Self(a)
        }
        pub fn queue_type(&self) -> Option<&[u8]> {
            None
        }
        pub fn wanted(
            &self,
            _p: Option<&policy::Policy>,
            _m: policy::Mode,
            _n: &intake_name::Names,
        ) -> Wanted {
            Wanted::Nothing
        }
        pub fn permission_probe(&self) -> Vec<u8> {
            vec![]
        }
        pub fn permission_probe_rewritten(&self, _i: &ShortStr) -> Vec<u8> {
            vec![]
        }
        pub fn rewritten(&self, _i: &ShortStr) -> Vec<u8> {
            vec![]
        }
    }
}
pub mod refusal {
    pub enum Permission {
        Granted,
        Refused,
        Unknown,
    }
    pub enum Fit {
        Rewritten,
        Answer(Vec<u8>),
        Original,
    }
    pub fn permission(_c: u16, _t: &[u8]) -> Permission {
        Permission::Unknown
    }
    pub fn fit(
        _c: u16,
        _t: &[u8],
        _a: &super::arguments::DeclareArguments<'_>,
        _n: &super::intake_name::Names,
    ) -> Fit {
        Fit::Original
    }
}
