//! Exchanges of the type `x-delayed-message` return what they deliver later.

use super::*;

#[test]
fn what_may_have_been_delivered_is_parked_for_good() {
    let delay = |value: i64| with(|headers| headers.long(b"x-delay", value));
    let text = |value: &str| with(|headers| headers.longstr(b"x-delay", value.as_bytes()));
    for (publication, cause) in [
        (delay(5_000), Cause::Delayed),
        (text("5000"), Cause::Delayed),
        (delay(0), Cause::Unroutable),
        (delay(-5_000), Cause::Unroutable),
        (text("soon"), Cause::Unroutable),
        (message("delayed", "k", "later"), Cause::Unroutable),
    ] {
        let mut rig = rig();
        rig.publish(1, publication.clone());
        assert_eq!(rig.published().len(), 1);
        rig.give_back(3, "delayed", "k", &publication.content);
        rig.ack(3, 1, false);
        assert_eq!(rig.published().len(), 1, "at the parking exchange");
        rig.ack(2, 1, false);
        assert_eq!(rig.settled(), [(1, Outcome::Parked(cause))]);
    }
}

fn with(delay: impl FnOnce(&mut TableBuilder) -> &mut TableBuilder) -> Publication {
    let mut headers = TableBuilder::default();
    delay(&mut headers);
    Publication {
        content: with_headers(headers, "later"),
        ..message("delayed", "k", "later")
    }
}
