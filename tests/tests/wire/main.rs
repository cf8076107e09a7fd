//! Real traffic between namespaces, through the program on a real interface.

mod bench;
mod big_tcp;
mod caps_on_the_wire;
mod captures;
mod challenges;
mod cookie_firewall;
mod cookie_limits;
mod cookie_listeners;
mod cookie_translation;
mod end_to_end;
mod known_clients;
mod links;
mod neighbours;
mod on_limit;
mod proof;
mod soak;
mod syn_cookies;
