"""From event files to rows of `events`."""
