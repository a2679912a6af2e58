//! Where dead letters go: to the target that held when the proxy decided.

use std::collections::BTreeSet;

use dlx_proxy::objects::OwnObject;

use super::super::codec::frame::Frame;
use super::super::codec::value::{Bytes, Value};
use super::super::proxy::names;
use super::super::rulings::Target;
use super::duties::Duty;
use super::rules::Window;
use super::{Accounts, Micros, Tag};

/// What is parked for one of these says of no target that it was meant for it.
const WITHOUT_TARGET: [&[u8]; 4] = [b"no_target", b"target_unknown", b"implausible", b"cycle"];

impl Accounts {
    /// Of a dead letter that a proxy publishes.
    ///
    /// # Errors
    /// It goes elsewhere than it should.
    pub(super) fn check_target(
        &mut self,
        tag: Tag,
        of: &(Bytes, Duty),
        (exchange, key): (&Bytes, &Bytes),
        letter: &Frame,
        at: Micros,
    ) -> Result<(), String> {
        let Some((exchange, queue)) = meant_for(exchange, letter).zip(died_in(letter)) else {
            return Ok(());
        };
        let Some(targets) = self.targets(tag, of, &queue, at)? else {
            return Ok(());
        };
        // Where a key is set, no other brings a dead letter anywhere (S2.2, S3.3).
        let has = |name: &&str| letter.headers().is_some_and(|of| of.get(name).is_some());
        let others = ["CC", "BCC"].iter().any(has);
        let goes = |target: &Target| {
            let by_its_key = |set: &String| set.as_bytes() == key && !others;
            target.exchange.as_bytes() == exchange && target.key.as_ref().is_none_or(by_its_key)
        };
        let known = targets.iter().flatten();
        if !known.clone().any(goes) {
            let known: Vec<String> = known.map(Target::to_string).collect();
            let (exchange, key) = (
                String::from_utf8_lossy(&exchange),
                String::from_utf8_lossy(key),
            );
            return Err(format!(
                "a dead letter goes to '{exchange}' by {key}, and not to {}: {letter}",
                known.join(" or ")
            ));
        }
        let first = self.rules.first_target(&queue);
        let elsewhere = usize::from(!first.as_ref().is_some_and(goes));
        let choice = usize::from(targets.len() > 1);
        match self.declares.are_lenient(&queue) {
            true => {
                self.count.moved += elsewhere;
                self.count.overtaken += choice;
            }
            false => {
                self.count.redirected += elsewhere;
                self.count.raced += choice;
            }
        }
        Ok(())
    }

    /// All that may be the target of that death, if a proxy publishes it now on that connection. What was decided before counts, too: of a message
    /// that died while it was away, or that was parked.
    pub(super) fn targets(
        &mut self,
        tag: Tag,
        of: &(Bytes, Duty),
        queue: &Bytes,
        at: Micros,
    ) -> Result<Option<BTreeSet<Option<Target>>>, String> {
        let death = self.deaths.get(of)?;
        let returned = death.when.is_some();
        let (since, decided) = (death.since, death.decided.clone());
        let signalled = death.signalled;
        let unknowing = death.unknowing || death.when.is_some_and(|when| when.unknowing);
        // A session that does not know what its client has declared goes by the policy alone.
        let forgets = self.declares_left || self.gone_once.contains(queue);
        let blind = unknowing || returned && forgets;
        let window: Window = since.unwrap_or(at)..=at;
        let Some(mut targets) =
            self.rules
                .targets(&self.declares, tag.0, queue, &window, (blind, signalled))
        else {
            return Ok(None);
        };
        if since.is_none() {
            targets.clear();
        }
        targets.extend(decided.into_iter().map(Some));
        Ok(Some(targets))
    }

    /// What a message carries that goes away or is parked: where its dead letter may be meant to go.
    pub(super) fn decided(
        &mut self,
        tag: Tag,
        of: &(Bytes, Duty),
        content: &Frame,
        at: Micros,
    ) -> Result<BTreeSet<Target>, String> {
        let queue = match &of.1 {
            Duty::Dies(_) => died_in(content),
            Duty::Leaves(stay) | Duty::Returns(stay) => Some(stay.queue.clone()),
            Duty::Redriven(_) => None,
        };
        let targets = match queue {
            Some(queue) => self.targets(tag, of, &queue, at)?,
            None => None,
        };
        Ok(targets.into_iter().flatten().flatten().collect())
    }
}

/// The exchange that a publication is for: behind a bridge, or as a parked one says. `None`: it says of none.
fn meant_for(exchange: &Bytes, letter: &Frame) -> Option<Bytes> {
    let said = |name| match letter.headers()?.get(name)? {
        Value::Text(text) => Some(text.clone()),
        _ => None,
    };
    if exchange == names().parking().as_bytes() {
        let cause = said("x-parked-cause")?;
        let has_target = !WITHOUT_TARGET.contains(&cause.as_slice());
        return has_target.then(|| said("x-parked-exchange")).flatten();
    }
    match names().parse(exchange) {
        Some(OwnObject::Bridge(behind)) => Some(behind.to_vec()),
        _ => Some(exchange.clone()),
    }
}

/// The queue of its newest death.
pub(super) fn died_in(letter: &Frame) -> Option<Bytes> {
    match letter.newest_death()?.get("queue")? {
        Value::Text(queue) => Some(queue.clone()),
        _ => None,
    }
}
