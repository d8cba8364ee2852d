-- The tables of the PostgreSQL store, in the schema that the search path names. lamina makes them when it opens a
-- schema without them. Who may not create tables has an administrator run this file once.
-- A new version stands here as a whole, with the statements that lead from the version before to it.

CREATE TABLE conversation (
    workspace text COLLATE "C" NOT NULL,
    name text COLLATE "C" NOT NULL,
    count bigint NOT NULL,
    state bytea NOT NULL,
    state_sum bigint NOT NULL,
    sum bigint NOT NULL,
    PRIMARY KEY (workspace, name)
);

CREATE TABLE record (
    workspace text COLLATE "C" NOT NULL,
    conversation text COLLATE "C" NOT NULL,
    seq bigint NOT NULL,
    body bytea NOT NULL,
    sum bigint NOT NULL,
    PRIMARY KEY (workspace, conversation, seq)
);

CREATE TABLE once (
    workspace text COLLATE "C" NOT NULL,
    conversation text COLLATE "C" NOT NULL,
    key bytea NOT NULL,
    digest bytea NOT NULL,
    count bigint NOT NULL,
    sum bigint NOT NULL,
    PRIMARY KEY (workspace, conversation, key)
);

CREATE TABLE lamina (version integer NOT NULL);
INSERT INTO lamina VALUES (3);
