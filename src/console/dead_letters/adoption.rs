//! `dlx-proxy queues adopt`, `release` and `alter`: shows the plan that the proxy makes, asks, and lets the proxy carry it out.

use std::io::{self, BufRead, IsTerminal, Write as _};

use hyper::Method;
use serde_json::Value;

use super::{Failed, Outcome, Query, Said};
use crate::console::admin::client::Client;
use crate::console::cli::{Adopted, Adoption, Altered, Output, Printing};
use crate::plain;

pub(super) async fn carry_out(
    client: &Client,
    printing: &Printing,
    what: &Adoption,
    mut query: Query,
) -> Result<(Said, Outcome), Failed> {
    let (page, queue, dry_run, approve) = match what {
        Adoption::Adopt(Adopted { which, approve }) => {
            ("adopt", which.queue.as_ref(), which.dry_run, *approve)
        }
        Adoption::Release(Adopted { which, approve }) => {
            ("release", which.queue.as_ref(), which.dry_run, *approve)
        }
        Adoption::Alter(Altered { which, approve }) => {
            ("alter", Some(&which.queue), which.dry_run, *approve)
        }
    };
    if let Some(queue) = queue {
        query.add("queue", queue);
    }
    let page = super::path(client, [&"queues", &page]);
    let order = format!("{page}{}", query.text());
    if dry_run {
        let plan = client.json(Method::POST, &order, "").await?;
        let outcome = match is_empty(&plan["missing"]) {
            true => Outcome::All,
            false => Outcome::Failed,
        };
        return Ok((said(&plan, printing)?, outcome));
    }
    if !approve {
        query.add("dry-run", "true");
        let plan = format!("{page}{}", query.text());
        let plan = client.json(Method::POST, &plan, "").await?;
        if plan["policies"].as_array().is_some_and(Vec::is_empty) {
            return Ok((said(&plan, printing)?, Outcome::All));
        }
        eprint!("{}", text(&plan));
        if !io::stdin().is_terminal() || !io::stderr().is_terminal() {
            return Err(Failed::PlanNotApproved);
        }
        if !is_approved()? {
            return Err(Failed::PlanDeclined);
        }
    }
    let done = client.json(Method::POST, &order, "").await?;
    Ok((said(&done, printing)?, Outcome::All))
}

fn said(answer: &Value, printing: &Printing) -> Result<Said, Failed> {
    match printing.output {
        Output::Json => Said::of(answer, printing, None),
        Output::Table | Output::Tsv => Ok(Said {
            answer: text(answer),
            notes: Vec::new(),
        }),
    }
}

fn is_approved() -> io::Result<bool> {
    eprint!("Is that right? [y/N] ");
    io::stderr().flush()?;
    let mut answer = String::new();
    io::stdin().lock().read_line(&mut answer)?;
    Ok(["y", "yes"].contains(&&*answer.trim().to_lowercase()))
}

fn is_empty(list: &Value) -> bool {
    list.as_array().is_none_or(Vec::is_empty)
}

/// A plan, or what was done, for people.
fn text(answer: &Value) -> String {
    let says = answer["says"].as_array().into_iter().flatten();
    let says = says.filter_map(Value::as_str);
    says.map(|sentence| format!("{}\n", plain::line(sentence)))
        .collect()
}
