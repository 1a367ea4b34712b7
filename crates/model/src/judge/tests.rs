mod changes;
mod paths;
mod properties;
