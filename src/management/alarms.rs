//! What the check of alarms answers: which resource is short on which node. The tag `management` suffices (3.10.8, 4.0.5, 4.3.6).

use serde::Deserialize;

use crate::telemetry::Alarm;

pub(super) const PATH: &str = "health/checks/alarms";

#[derive(Deserialize)]
struct Answer {
    #[serde(rename = "status")]
    _status: String,
    #[serde(default)]
    alarms: Vec<Listed>,
}

#[derive(Deserialize)]
struct Listed {
    node: String,
    resource: String,
}

pub(super) fn read(json: &[u8]) -> serde_json::Result<Vec<Alarm>> {
    let Answer { alarms, .. } = serde_json::from_slice(json)?;
    let alarms = alarms.into_iter();
    Ok(alarms
        .map(|Listed { node, resource }| Alarm { node, resource })
        .collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Answers of 3.10.8, 4.0.5 and 4.3.6.
    #[test]
    fn alarms_are_read() {
        let none = read(br#"{"status":"ok"}"#).expect("an answer");
        assert_eq!(none, []);
        let some = read(br#"{"reason":"There are alarms in effect in the cluster","status":"failed","alarms":[{"node":"a@b","resource":"memory"}]}"#);
        let [Alarm { node, resource }] = &some.expect("an answer")[..] else {
            panic!("one alarm")
        };
        assert_eq!((node.as_str(), resource.as_str()), ("a@b", "memory"));
        assert!(read(b"[]").is_err());
    }
}
