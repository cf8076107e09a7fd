//! Passes each order of an operator to the part of the daemon that answers it.

use crate::{
    control::{
        protocol::{Operator, Order, Reply},
        server::Caller,
    },
    daemon::{
        cluster::Cluster,
        host::Host,
        lists::ListChanger,
        orders::{
            caller::By,
            change::Apply,
            limits::{limit, limits},
            list_orders::BlockScope,
            users::{reset_user, set_user, user, users},
        },
        state::entries,
        views::{explain::explain, status::status},
    },
    dataplane::probe,
    failure::{ExitCode, Failure},
};

/// Carries out one order that does not read the table or counters. A change is noted in the reports of attacks that go on.
pub(in crate::daemon) fn answer(host: &mut Host, request: Order, caller: Caller) -> Result<Reply, Failure> {
    let reply = carry_out(host, request, caller);
    if let Ok(Reply::Done(message) | Reply::Applied { message, .. }) = &reply {
        host.attacks.note(message);
    }
    reply
}

fn carry_out(host: &mut Host, request: Order, caller: Caller) -> Result<Reply, Failure> {
    let now_ns = probe::now_ns();
    let nobody = Operator::default();
    let by = |operator| By { caller, operator };
    match request {
        Order::Status => Ok(Reply::Status(Box::new(status(host)))),
        Order::Stats | Order::Top => Err(Failure::usage("counters are read apart from the host")),
        Order::Explain { address, service } => {
            host.take_in_drops();
            explain(host, address, service.as_deref())
        }
        Order::Watch { .. } => {
            Err(Failure::usage("what is watched is told line by line, on a connection of its own"))
        }
        Order::BlockAdd { prefix, for_ns, reason, cluster, operator } => {
            let changer = ListChanger { operator: &operator, by: &by(Some(&operator)), now_ns };
            host.list_editor().block(&prefix, for_ns, reason.as_deref(), BlockScope::of(cluster), &changer)
        }
        Order::BlockDel { prefix, cluster } => {
            let changer = ListChanger { operator: &nobody, by: &by(None), now_ns };
            host.list_editor().unblock(&prefix, BlockScope::of(cluster), &changer)
        }
        Order::Lists { most } => {
            Ok(Reply::Lists(Box::new(host.lists.first(host.cluster.as_ref(), most as usize, now_ns))))
        }
        Order::History => Ok(Reply::History(host.history.seconds())),
        Order::BlockList => Ok(Reply::Blocks(host.lists.blocks(host.cluster.as_ref(), now_ns))),
        Order::AllowAdd { prefix } => {
            host.list_editor().allow(&prefix, &ListChanger { operator: &nobody, by: &by(None), now_ns })
        }
        Order::AllowDel { prefix, operator } => {
            let changer = ListChanger { operator: &operator, by: &by(Some(&operator)), now_ns };
            host.list_editor().disallow(&prefix, &changer)
        }
        Order::AllowList => {
            Ok(Reply::Allows(entries::allows(&host.lists.lists).map(ToString::to_string).collect()))
        }
        Order::Test(_) => Err(Failure::usage("a test is answered apart from the host")),
        Order::KnownShow { .. }
        | Order::KnownExport { .. }
        | Order::KnownImport { .. }
        | Order::KnownForget { .. } => Err(Failure::usage("known clients are read apart from the host")),
        Order::Cluster => match &host.cluster {
            Some(cluster) => Ok(cluster.reply(now_ns)),
            None => Err(Cluster::none(ExitCode::Found)),
        },
        Order::LimitList => Ok(Reply::Limits(limits(host.policy()))),
        Order::LimitGet { name } => limit(host.policy(), &name),
        Order::LimitSet { name, rate, save, operator } => {
            let (in_force, mut enforcer) = host.change();
            in_force.set_limit(&name, rate, save, (&operator, &by(Some(&operator))), &mut enforcer)
        }
        Order::UserList => Ok(Reply::Users(users(host.policy()))),
        Order::UserGet { name } => user(host, &name, now_ns),
        Order::UserSet { user, operator } => {
            let (in_force, mut enforcer) = host.change();
            set_user(in_force, &user, (&operator, &by(Some(&operator))), &mut enforcer)
        }
        Order::UserReset { name } => reset_user(host, &name, &by(None)),
        Order::Diff { file, text, .. } => host.in_force.diff(&file, text),
        Order::Apply { file, text, confirm_ns, operator, .. } => {
            let (in_force, mut enforcer) = host.change();
            let order = Apply { file, text, confirm_ns };
            in_force.apply(order, &operator, &by(Some(&operator)), &mut enforcer)
        }
        Order::Confirm => host.in_force.confirm(&by(None)),
        Order::Rollback { operator } => {
            let (in_force, mut enforcer) = host.change();
            in_force.rollback(&operator, &by(Some(&operator)), &mut enforcer)
        }
        Order::AttackList => Ok(Reply::Attacks(host.attacks.list())),
        Order::AttackShow { number } => Ok(Reply::Attack(Box::new(host.attacks.show(number)?))),
        Order::Detach { interface } => host.interfaces.detach(interface.as_deref()),
    }
}
