//! Transactions, as far as somebody asks with them whether he may publish: what is published in one is rolled back.

use crate::codec::methods::Args;

use super::broker::Broker;
use super::call::Call;
use super::channel::At;
use super::refusal::{Answer, refuse};

impl Broker {
    pub(super) fn transaction(&mut self, at: At, call: &Call) -> Answer<()> {
        let channel = self.channel(at);
        match &*call.method.name {
            "tx.select" if channel.confirms => {
                return refuse(406, "cannot switch from confirm to tx mode");
            }
            "tx.select" => {
                channel.transactional = true;
                self.reply(at, "tx.select-ok", Args::new());
            }
            _ if !channel.transactional => return refuse(406, "channel is not transactional"),
            "tx.rollback" => self.reply(at, "tx.rollback-ok", Args::new()),
            _ => return refuse(540, "the model commits nothing"),
        }
        Ok(())
    }
}
