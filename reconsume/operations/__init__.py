"""Operations by people on an installation."""
