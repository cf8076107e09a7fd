//! The password for a login, from where it is: a file is read each time, so that a new password counts at the next connection.

use super::store_error::StoreError;
use crate::{policy::address::Password, secret_file};

/// Reads the password as it is now.
pub(super) fn read(password: &Password) -> Result<String, StoreError> {
    match password {
        Password::Known(password) => Ok(password.clone()),
        Password::InFile(path) => {
            let wrong = |why: String| StoreError::PasswordFile { file: path.display().to_string(), why };
            let text = secret_file::read(path).map_err(|error| wrong(error.to_string()))?;
            let line = text.lines().next().unwrap_or_default();
            match line.is_empty() {
                true => Err(wrong("there is no password in its first line".into())),
                false => Ok(line.to_owned()),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn the_first_line_of_a_file_is_the_password_of_the_moment() {
        let file = std::env::temp_dir().join(format!("ratelimit-password-{}", std::process::id()));
        let password = Password::InFile(file.clone());
        for (text, expected) in
            [("one\n", "one"), ("two words \r\nnot this\n", "two words "), ("three", "three")]
        {
            fs::write(&file, text).unwrap();
            assert_eq!(read(&password).as_deref(), Ok(expected));
        }
        fs::write(&file, "\nsecret\n").unwrap();
        let said = read(&password).unwrap_err().to_string();
        assert!(
            said.ends_with("there is no password in its first line") && !said.contains("secret"),
            "{said}"
        );
        fs::remove_file(&file).unwrap();
        assert!(read(&password).unwrap_err().to_string().starts_with("password_file "));
    }
}
