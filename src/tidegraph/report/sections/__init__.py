"""The sections of a report, one file each, in the order of the page: `page` puts them together."""
