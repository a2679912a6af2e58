//! A moment as text. Apart because the usual crates need a clock's type for it.

use crate::machine::Wall;

/// The last second of year 9999, the limit of RFC 3339.
const LAST: u64 = 253_402_300_799;
const DAY: u64 = 86_400;
const CYCLE: u64 = 146_097;

pub fn rfc_3339(at: Wall) -> String {
    format!("{}Z", second(at.seconds().min(LAST)))
}

pub fn rfc_3339_millis(at: Wall) -> String {
    let at = at.0.min(LAST * 1000 + 999);
    format!("{}.{:03}Z", second(at / 1000), at % 1000)
}

fn second(seconds: u64) -> String {
    let (year, month, day) = date(seconds / DAY);
    let of_day = seconds % DAY;
    let (hour, minute, second) = (of_day / 3600, of_day / 60 % 60, of_day % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}")
}

/// Year, month and day, `days` after 1970-01-01. Years begin in March here, so that the leap day is
/// the last one.
fn date(days: u64) -> (u64, u64, u64) {
    let days = days + 719_468; // since 0000-03-01
    let (cycle, days) = (days / CYCLE, days % CYCLE);
    let year = (days - days / 1460 + days / 36_524 - days / (CYCLE - 1)) / 365;
    let days = days - (365 * year + year / 4 - year / 100);
    let month = (5 * days + 2) / 153;
    let day = days - (153 * month + 2) / 5 + 1;
    let year = cycle * 400 + year;
    match month {
        0..=9 => (year, month + 3, day),
        _ => (year + 1, month - 9, day),
    }
}
