"""The queries of an index in PostgreSQL that are more than a line of SQL.

Words are scored by BM25, for which `ts_rank` of a single word tells how often it occurs. Every table holds
all workspaces, so each query asks for one `space`.
"""

from __future__ import annotations

ROW = "SELECT id, source, nth, text, place, head, section, speaker, at, sort FROM chunk WHERE space = %s"
COUNTS = (
    "SELECT word, (SELECT count(*) FROM (SELECT FROM term WHERE words @@ query LIMIT %s) AS matching) "
    "FROM unnest(%s::text[], %s::tsquery[]) AS given (word, query)"
)
TOTALS = "SELECT chunks, words::float8 / greatest(chunks, 1) FROM space WHERE number = %s"
MATCHES = """
SELECT id, sum(weight * 2.2 * times / (times + 1.2 * (0.25 + 0.75 * size / %(mean)s))) AS score
FROM (
    SELECT id, size, weight,
        1 / (1.6449340668 * (1 - ts_rank('{1, 1, 1, 1}', words, query))::float8) - 0.5 AS times
    FROM unnest(%(queries)s::tsquery[], %(weights)s::float8[]) AS given (query, weight)
    JOIN term ON words @@ query
    WHERE space = %(space)s AND (%(only)s::text[] IS NULL OR id IN (
        SELECT id FROM chunk WHERE space = %(space)s AND source = ANY(%(only)s::text[])))
) AS found GROUP BY id ORDER BY score DESC, id LIMIT %(most)s
"""
# ts_rank of one word that occurs n times is (1 + 1/4 + … + 1/n²) · 6/π². The difference to 1, times π²/6, is
# about 1 / (n + ½). So n, which is `times`, is about 1 / (π²/6 · (1 - ts_rank)) - ½.
NEAR = """
WITH scored AS MATERIALIZED (
    SELECT id, -(vector <#> %(wanted)s::vector) AS near FROM vec
    WHERE space = %(space)s AND (%(only)s::text[] IS NULL OR id IN (
        SELECT id FROM chunk WHERE space = %(space)s AND source = ANY(%(only)s::text[])))
), ends AS (SELECT min(near) AS low, max(near) AS high FROM scored),
best AS (SELECT id, near FROM scored ORDER BY near DESC LIMIT %(most)s)
SELECT id, near, low, high FROM ends,
    (SELECT id, near FROM best UNION SELECT id, near FROM scored WHERE id = ANY(%(also)s::bigint[])) AS found
"""
CANDIDATES = "SELECT id, speaker, at, sort FROM chunk WHERE space = %s AND id = ANY(%s)"
NEIGHBOURS = (  # the limit keeps the server from reading all chunks, however few it takes them for
    "SELECT c.id, n.nth - c.nth, length(n.text), n.id, n.speaker, n.at, n.sort "
    "FROM chunk c CROSS JOIN LATERAL (SELECT * FROM chunk WHERE space = c.space AND source = c.source "
    "AND nth BETWEEN c.nth - %(reach)s AND c.nth + %(reach)s LIMIT 2 * %(reach)s + 1) AS n "
    "WHERE c.space = %(space)s AND c.id = ANY(%(ids)s) AND n.nth != c.nth AND n.section = c.section"
)
SPEAKERS = (  # one step through the index for each
    "WITH RECURSIVE people (name) AS (SELECT min(speaker) FROM chunk WHERE space = %(space)s UNION ALL "
    "SELECT (SELECT min(speaker) FROM chunk WHERE space = %(space)s AND speaker > name) FROM people "
    "WHERE name IS NOT NULL) SELECT name FROM people WHERE name != '' LIMIT 1000"
)
