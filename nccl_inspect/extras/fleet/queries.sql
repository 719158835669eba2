-- The queries of a report, by name. What stands in braces is put in by report.py: names of its own.

-- name: totals
SELECT min(start) AS first, max(start) AS last, count(*) AS jobs, count(*) FILTER (bad) AS bad,
    (SELECT count(DISTINCT host) FROM host) AS hosts FROM job

-- name: verdicts
SELECT verdict, count(*) AS jobs FROM job GROUP BY 1

-- name: days
SELECT start::DATE AS day, count(*) AS jobs, count_if(bad) AS bad, count_if(verdict = 'ok') AS ok,
    count_if(verdict = 'unknown') AS unknown, count_if(verdict = 'degraded') AS degraded,
    count_if(verdict = 'failed') AS failed FROM job GROUP BY 1 ORDER BY 1

-- name: causes
SELECT coalesce(rule, 'none') AS rule, any_value(category) AS category, count(*) AS bad, min(start) AS first,
    max(start) AS last FROM job WHERE bad GROUP BY 1 ORDER BY 3 DESC, 1 LIMIT 12

-- name: cause_days
SELECT coalesce(rule, 'none') AS rule, start::DATE AS day, count(*) AS bad FROM job WHERE bad GROUP BY ALL ORDER BY 1, 2

-- name: own
CREATE OR REPLACE TEMP TABLE own AS SELECT j.*, named FROM job j
    JOIN (SELECT job, bool_or(named) AS named FROM ({pairs}) WHERE name = ? GROUP BY job) USING (job)

-- name: own_totals
SELECT count(*) AS jobs, count_if(bad) AS bad, min(start) FILTER (bad) AS first, max(start) FILTER (bad) AS last FROM own

-- name: own_rules
SELECT rule, count(*) AS jobs FROM own WHERE bad AND rule IS NOT NULL GROUP BY 1 ORDER BY 2 DESC, 1 LIMIT 3

-- name: own_proofs
SELECT job, name, start, verdict, rule, summary, source, line, text FROM own WHERE bad
    ORDER BY named DESC, start DESC LIMIT 3

-- name: new
WITH span AS (SELECT min(start) AS first_job, max(start) AS last_job FROM job), seen AS (
    SELECT 'cause' AS kind, rule AS name, job, bad, start FROM job WHERE bad
    UNION ALL SELECT 'image', image, job, bad, start FROM job
    UNION ALL SELECT 'release', release, job, bad, start FROM job
    UNION ALL SELECT 'setting', name || '=' || value, job, bad, start FROM setting
    UNION ALL SELECT 'host', host, job, bad, start FROM host
), counted AS (
    SELECT kind, name, min(start) AS first, count(DISTINCT job) AS jobs, count(DISTINCT job) FILTER (bad) AS bad
    FROM seen WHERE name IS NOT NULL GROUP BY 1, 2
) SELECT kind, name, first, jobs, bad FROM counted, span
    WHERE first > last_job - INTERVAL 7 DAY AND last_job - first_job >= INTERVAL 7 DAY
    QUALIFY row_number() OVER (PARTITION BY kind ORDER BY bad DESC, jobs DESC, name) <= 20
    ORDER BY kind, bad DESC, jobs DESC, name

-- name: others
CREATE OR REPLACE TEMP TABLE others AS SELECT job, bad, start, image, release, rule FROM job
    WHERE job NOT IN (SELECT job FROM host WHERE list_contains(?, host))

-- name: others_size
SELECT count(*) AS size FROM others

-- name: changed
SELECT {kind} AS name, min(start) AS first, count(*) AS jobs, count_if(bad) AS bad, mode(rule) FILTER (bad) AS rule
    FROM others, (SELECT min(start) AS first_job FROM others) WHERE {kind} IS NOT NULL GROUP BY 1
    HAVING min(start) > any_value(first_job) + INTERVAL 1 DAY AND count(*) >= 10

-- name: before
SELECT mode({kind}) AS name, count(*) AS jobs, count_if(bad) AS bad FROM others
    WHERE {kind} <> $name AND start BETWEEN $first::TIMESTAMP - INTERVAL 7 DAY AND $first

-- name: by
SELECT p.name, count(*) AS jobs, count_if(bad) AS bad, count_if(bad AND named) AS named, min(start) AS first,
    max(start) AS last FROM job JOIN (SELECT job, name, bool_or(named) AS named FROM ({pairs}) GROUP BY ALL) p
    USING (job) GROUP BY p.name
