//! A script with the name that messages have for it, and one call of it.

use std::fmt;

/// A Lua script. Servers keep scripts by their SHA1.
pub struct Script {
    name: &'static str,
    text: &'static str,
    sha1: String,
    has_spare_key: bool,
}

impl Script {
    /// A script and the name that messages have for it.
    pub fn new(name: &'static str, text: &'static str) -> Self {
        Self { name, text, sha1: ::redis::Script::new(text).get_hash().to_owned(), has_spare_key: false }
    }

    /// Says that the second of two keys of a call may be left out: it is, if a slot of a Redis Cluster moves and has only one of them.
    #[must_use]
    pub fn with_spare_key(self) -> Self {
        Self { has_spare_key: true, ..self }
    }

    /// The name of the script in messages.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// The source text of the script.
    pub fn text(&self) -> &'static str {
        self.text
    }

    /// SHA1 of the text, in hexadecimal digits.
    pub fn sha1(&self) -> &str {
        &self.sha1
    }
}

impl fmt::Debug for Script {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Script({} {})", self.name, self.sha1)
    }
}

/// One call of a script. Calls of one run must not depend on their order: a call whose script the server lacks is run behind the others.
#[derive(Clone, Debug)]
pub struct Call<'a> {
    /// The script that is called.
    pub script: &'a Script,
    /// The keys of the call, all in one hash slot if the store is a cluster. The first key decides where the call goes.
    pub keys: Vec<Vec<u8>>,
    /// The arguments of the call.
    pub args: Vec<Vec<u8>>,
}

/// How a call names its script: by hash, or with the text, which runs the script and leaves it there for the next call by hash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    Hash,
    Text,
}

impl Call<'_> {
    /// Whether the call can be made without its last key.
    pub(super) fn has_spare_key(&self) -> bool {
        self.script.has_spare_key && self.keys.len() == 2
    }

    /// Makes the command, with the first `keys` keys.
    pub(super) fn command(&self, form: Form, keys: usize) -> ::redis::Cmd {
        let (verb, script) = match form {
            Form::Hash => ("EVALSHA", self.script.sha1()),
            Form::Text => ("EVAL", self.script.text()),
        };
        let mut command = ::redis::cmd(verb);
        let keys = &self.keys[..keys.min(self.keys.len())];
        command.arg(script).arg(keys.len());
        for word in keys.iter().chain(&self.args) {
            command.arg(word.as_slice());
        }
        command
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_script_has_the_hash_that_servers_give_it() {
        // redis-cli SCRIPT LOAD "return 1"
        assert_eq!(Script::new("one", "return 1").sha1(), "e0e1f9fabfc9d4800c877a703b823ac0578ff8db");
    }

    #[test]
    fn both_forms_carry_the_same_keys_and_arguments() {
        let script = Script::new("one", "return 1");
        let call = Call { script: &script, keys: vec![b"k".to_vec()], args: vec![b"a\r\n".to_vec(), vec![]] };
        let sent = |form| String::from_utf8(call.command(form, 1).get_packed_command()).unwrap();
        let tail = "$1\r\n1\r\n$1\r\nk\r\n$3\r\na\r\n\r\n$0\r\n\r\n";
        assert_eq!(sent(Form::Text), format!("*6\r\n$4\r\nEVAL\r\n$8\r\nreturn 1\r\n{tail}"));
        assert_eq!(sent(Form::Hash), format!("*6\r\n$7\r\nEVALSHA\r\n$40\r\n{}\r\n{tail}", script.sha1()));
    }
}
