//! `ratelimit user`: users of the running policy.

use clap::{Args, Subcommand};

use super::{
    DaemonArgs, Format,
    operator::Force,
    order::order,
    output::{Output, print, print_json, table},
};
use crate::{
    control::{
        client::{ask, unexpected},
        protocol::{Order, Reply, UserInfo, UserOrder},
    },
    failure::Failure,
};

/// Show or change users of the running policy.
#[derive(Debug, Args)]
pub(super) struct UserArgs {
    #[command(subcommand)]
    action: UserAction,
}

#[derive(Debug, Subcommand)]
enum UserAction {
    /// Show all users, their plans, sources and limits
    ///
    /// Example: ratelimit user list
    List {
        #[command(flatten)]
        daemon: DaemonArgs,
        #[command(flatten)]
        format: Format,
    },
    /// Show one user, and how much of each of its limits is left
    ///
    /// Example: ratelimit user get acme
    Get {
        /// Name of the user
        name: String,
        #[command(flatten)]
        daemon: DaemonArgs,
        #[command(flatten)]
        format: Format,
    },
    /// Change a user's plan or its own limits from the next packet on
    ///
    /// Limits of the user's own take the place of the plan's. The policy file is not touched unless --save is given; then only this user changes
    /// in the file, and comments stay.
    ///
    /// Example: ratelimit user set acme --plan gold
    ///
    /// Example: ratelimit user set acme --network "20000 packets/s burst 40000" --network "1 Gbit/s"
    Set {
        /// Name of the user
        name: String,
        /// Plan of the user from now on
        #[arg(long)]
        plan: Option<String>,
        /// A limit of the user's own, instead of the plan's; may be given more than once
        #[arg(long, value_name = "RATE")]
        network: Vec<String>,
        /// Use the limits of the plan again, and none of the user's own
        #[arg(long, conflicts_with = "network")]
        inherit: bool,
        /// Also write it into the file that the policy came from
        #[arg(long)]
        save: bool,
        #[command(flatten)]
        force: Force,
        #[command(flatten)]
        daemon: DaemonArgs,
        #[command(flatten)]
        format: Format,
    },
    /// Give a user its whole burst of packets again; what was counted of its requests stays
    ///
    /// Example: ratelimit user reset acme
    Reset {
        /// Name of the user
        name: String,
        #[command(flatten)]
        daemon: DaemonArgs,
        #[command(flatten)]
        format: Format,
    },
}

impl UserArgs {
    pub(super) fn execute(self) -> Result<(), Failure> {
        match self.action {
            UserAction::List { daemon, format } => match ask(&daemon.state, Order::UserList)? {
                Reply::Users(users) if format.output == Output::Json => {
                    print_json(&serde_json::json!({ "users": users }))
                }
                Reply::Users(users) if users.is_empty() => print("the policy has no users\n"),
                Reply::Users(users) => print(&list(&users)),
                other => Err(unexpected(&other)),
            },
            UserAction::Get { name, daemon, format } => match ask(&daemon.state, Order::UserGet { name })? {
                Reply::Users(users) if format.output == Output::Json => print_json(&users.first()),
                Reply::Users(users) => print(&users.iter().map(one).collect::<String>()),
                other => Err(unexpected(&other)),
            },
            UserAction::Set { name, plan, network, inherit, save, force, daemon, format } => {
                if plan.is_none() && network.is_empty() && !inherit {
                    return Err(Failure::usage("nothing to set; use --plan, --network or --inherit"));
                }
                let user = UserOrder { name, plan, network, inherit, save };
                let request = Order::UserSet { user, operator: force.operator() };
                order(&daemon.state, request, format.output)
            }
            UserAction::Reset { name, daemon, format } => {
                order(&daemon.state, Order::UserReset { name }, format.output)
            }
        }
    }
}

const NOTHING: &str = "none";

fn plan(user: &UserInfo) -> &str {
    user.plan.as_deref().unwrap_or(NOTHING)
}

fn joined(words: &[String]) -> String {
    if words.is_empty() { NOTHING.to_owned() } else { words.join(", ") }
}

fn list(users: &[UserInfo]) -> String {
    let row = |user: &UserInfo| {
        let own = if user.own { ", its own" } else { "" };
        let network = format!("{}{own}", joined(&user.network));
        vec![user.name.clone(), plan(user).to_owned(), joined(&user.sources), network]
    };
    table(&["user", "plan", "sources", "network"], &users.iter().map(row).collect::<Vec<_>>())
}

fn one(user: &UserInfo) -> String {
    let from = match (user.own, &user.plan) {
        (true, _) => "its own",
        (false, Some(_)) => "of its plan",
        (false, None) => NOTHING,
    };
    let mut text = format!(
        "user     {}\nplan     {}\nsources  {}\nnetwork  {from}\n",
        user.name,
        plan(user),
        joined(&user.sources)
    );
    for bucket in user.buckets.iter().flatten() {
        text.push_str(&format!("         {}: {} of {} left\n", bucket.limit, bucket.left, bucket.burst));
    }
    text
}
