use std::time::{Duration, UNIX_EPOCH};

use humantime_serde::re::humantime::{format_rfc3339_millis, format_rfc3339_seconds};
use proptest::prelude::*;

use crate::machine::Wall;

use super::super::time::{rfc_3339, rfc_3339_millis};

#[test]
fn moments_with_a_day_that_is_not_in_every_year_have_names() {
    for (seconds, text) in [
        (0, "1970-01-01T00:00:00Z"),
        (951_782_400, "2000-02-29T00:00:00Z"),
        (4_107_542_399, "2100-02-28T23:59:59Z"),
        (4_107_542_400, "2100-03-01T00:00:00Z"),
        (u64::MAX, "9999-12-31T23:59:59Z"),
    ] {
        assert_eq!(rfc_3339(Wall::of_seconds(seconds)), text);
    }
    assert_eq!(rfc_3339_millis(Wall(u64::MAX)), "9999-12-31T23:59:59.999Z");
}

proptest! {
    #[test]
    fn moments_are_named_as_by_humantime(millis in 0..253_402_300_800_000_u64) {
        let at = UNIX_EPOCH + Duration::from_millis(millis);
        prop_assert_eq!(rfc_3339(Wall(millis)), format_rfc3339_seconds(at).to_string());
        prop_assert_eq!(rfc_3339_millis(Wall(millis)), format_rfc3339_millis(at).to_string());
    }
}
