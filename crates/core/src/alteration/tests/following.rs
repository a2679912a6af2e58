//! A proxy that takes part, against a scripted one that is at work (`testdata/follower`).

use super::*;

struct Following {
    rig: Rig<Follower>,
    tag: u64,
}

impl Script for Following {
    type Machine = Follower;

    /// `new [holds]`
    fn begin(words: &mut Words) -> Following {
        let settings = settings(Task::Follow, false);
        let holds = words.flag("holds");
        Following {
            rig: Rig::new(Follower::new(settings, holds, Now::default())),
            tag: 0,
        }
    }

    fn rig(&mut self) -> &mut Rig<Follower> {
        &mut self.rig
    }

    /// As [`input`], and `waits`, `hold`, `settle`, `cancel`, `moving`, `over`, `ended` from the proxy that is at work: `[attempt=N] [by=user]`.
    fn line(&mut self, words: &mut Words) -> bool {
        let word = match &*words.verb {
            "waits" => Word::Waits,
            "hold" => Word::Told(Told::Hold),
            "settle" => Word::Told(Told::Settle),
            "moving" => Word::Told(Told::Moving),
            "cancel" => Word::Told(Told::Cancel),
            "over" => Word::Told(Told::Over(Made::Ordered)),
            "ended" => Word::Ended,
            _ => return input(words).map(|input| self.rig.input(input)).is_some(),
        };
        let attempt = words.option_number("attempt").unwrap_or(1) as u32;
        let by = words.option("by").unwrap_or("proxy".to_owned());
        self.tag += 1;
        let told = Numbered { attempt, word };
        self.rig.broker(&comes(self.tag, &told, &by));
        true
    }

    fn told(&mut self) -> Vec<String> {
        shown(std::mem::take(&mut self.rig.fx.out))
    }
}

#[test]
fn scripts_show_how_a_proxy_takes_part() {
    check::<Following>("alteration/testdata/follower");
}
