"""What people look at: tables in a terminal, progress, figures."""
