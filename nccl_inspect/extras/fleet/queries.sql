-- The queries of a report, by name. Values are parameters; what stands in braces is one of the tables here.

-- name: uses
-- What occurs in which jobs; of NICs, those that carry paths. The coarser kinds come first.
CREATE TEMP VIEW uses AS
SELECT 'image' AS kind, image AS name, NULL AS host, job, false AS named FROM job WHERE image IS NOT NULL
UNION ALL SELECT 'release', release, NULL, job, false FROM job WHERE release IS NOT NULL
UNION ALL SELECT 'setting', name || '=' || value, NULL, job, false FROM setting WHERE value IS NOT NULL
UNION ALL SELECT 'host', host, host, job, named FROM host
UNION ALL SELECT 'nic', host || ' ' || nic, host, job, named FROM nic WHERE paths_out + paths_in > 0
UNION ALL SELECT 'gpu', host || ' GPU ' || gpu, host, job, named FROM rank WHERE gpu IS NOT NULL

-- name: compared
-- The jobs that are compared: those of a stratum are alike in size and day, as far as there are enough of them.
CREATE TEMP TABLE compared AS
WITH sized AS (
    SELECT job, bad, day, ceil(log2(greatest(coalesce(hosts, 1), 1))) AS size FROM job
), by_size AS (
    SELECT job, bad, day, if(count(*) OVER () >= $least * (SELECT count(DISTINCT size) FROM sized), size, 0) AS size
    FROM sized
), by_day AS (
    SELECT job, bad, size, if(count(*) OVER () >= $least * (SELECT count(DISTINCT (size, day)) FROM by_size), day, NULL)
    AS day FROM by_size
) SELECT (row_number() OVER ())::INTEGER AS number, job, bad, (dense_rank() OVER (ORDER BY size, day))::INTEGER AS stratum
    FROM by_day

-- name: pairs
-- Which of them used what; parts of hosts only where a host is looked at.
CREATE TEMP TABLE things AS SELECT *, (row_number() OVER (ORDER BY kind, name))::INTEGER AS thing
    FROM (SELECT DISTINCT kind, name, host FROM uses WHERE kind NOT IN ('nic', 'gpu'));
CREATE TEMP TABLE pairs AS SELECT thing, number, bool_or(named) AS named
    FROM uses JOIN things USING (kind, name) JOIN compared USING (job) WHERE kind NOT IN ('nic', 'gpu') GROUP BY ALL

-- name: comparisons
SELECT (SELECT count(*) FROM things) + (SELECT count(*) FROM (SELECT DISTINCT host, gpu FROM rank WHERE gpu IS NOT NULL))
    + (SELECT count(*) FROM (SELECT DISTINCT host, nic FROM nic WHERE paths_out + paths_in > 0)) AS number

-- name: parts
CREATE OR REPLACE TEMP TABLE parts AS SELECT kind || name AS thing, kind, name, host, number, bool_or(named) AS named
    FROM uses JOIN compared USING (job) WHERE kind IN ('nic', 'gpu') AND host = $host GROUP BY ALL

-- name: counts
-- How often jobs were bad with something, and how often others of like size and day were, where there are others. Only
-- what is in at least some bad jobs, and more often than others.
WITH strata AS (
    SELECT stratum, count(*) AS jobs, count_if(bad) AS bad FROM compared GROUP BY 1
), total AS (
    SELECT sum(jobs)::BIGINT AS everything, sum(bad)::BIGINT AS all_bad FROM strata
), often AS (
    SELECT thing, count(*) AS jobs, count_if(bad) AS bad, count_if(bad AND named) AS named, everything, all_bad
    FROM {pairs} JOIN compared USING (number), total GROUP BY thing, everything, all_bad
    HAVING bad >= $least AND jobs < everything AND bad * (everything - jobs) > $ratio * jobs * (all_bad - bad)
), cells AS (
    SELECT thing, stratum, count(*) AS jobs, count_if(bad) AS bad
    FROM {pairs} JOIN compared USING (number) SEMI JOIN often USING (thing) GROUP BY ALL
), expected AS (
    SELECT thing, sum(c.jobs)::BIGINT AS compared, sum(c.bad)::BIGINT AS seen,
        round(sum(c.jobs * (s.bad - c.bad) / (s.jobs - c.jobs)), 9) AS expected
    FROM cells c JOIN strata s USING (stratum) WHERE s.jobs > c.jobs GROUP BY 1
) SELECT thing, kind, name, host, often.* EXCLUDE thing, expected.* EXCLUDE thing
    FROM often JOIN expected USING (thing) JOIN (SELECT DISTINCT thing, kind, name, host FROM {things}) USING (thing)
    ORDER BY thing

-- name: mine
CREATE OR REPLACE TEMP TABLE mine AS SELECT number FROM {pairs} JOIN compared USING (number) WHERE thing = $thing

-- name: together
SELECT kind, name FROM things JOIN pairs USING (thing) SEMI JOIN mine USING (number)
    WHERE list_contains($things, thing) GROUP BY ALL HAVING count(*) = (SELECT count(*) FROM mine) ORDER BY kind, name

-- name: set_aside
DELETE FROM compared WHERE number IN (FROM mine)

-- name: totals
SELECT min(start) AS first, max(start) AS last, count(*) AS jobs, count(*) FILTER (bad) AS bad,
    count(*) FILTER (start IS NULL) AS undated, (SELECT count(DISTINCT host) FROM host) AS hosts FROM job

-- name: whole_totals
SELECT count(*) AS jobs, count(*) FILTER (start IS NULL) AS undated FROM whole.job

-- name: verdicts
SELECT verdict, count(*) AS jobs FROM job GROUP BY 1

-- name: days
SELECT day, count(*) AS jobs, count_if(bad) AS bad, count_if(verdict = 'ok') AS ok,
    count_if(verdict = 'unknown') AS unknown, count_if(verdict = 'degraded') AS degraded,
    count_if(verdict = 'failed') AS failed FROM job WHERE day IS NOT NULL GROUP BY 1 ORDER BY 1

-- name: causes
SELECT coalesce(rule, 'none') AS rule, any_value(category) AS category, count(*) AS bad, min(start) AS first,
    max(start) AS last FROM job WHERE bad GROUP BY 1 ORDER BY 3 DESC, 1 LIMIT 12

-- name: cause_days
SELECT coalesce(rule, 'none') AS rule, day, count(*) AS bad FROM job WHERE bad AND day IS NOT NULL
    GROUP BY ALL ORDER BY 1, 2

-- name: own
CREATE OR REPLACE TEMP TABLE own AS SELECT job, start, bad, rule, named FROM job JOIN (
    SELECT job, bool_or(named) AS named FROM uses WHERE kind = $kind AND name = $name GROUP BY job) USING (job)

-- name: own_totals
SELECT count(*) AS jobs, count(*) FILTER (bad) AS bad, min(start) FILTER (bad) AS first, max(start) FILTER (bad) AS last FROM own

-- name: own_rules
SELECT rule, count(*) AS jobs FROM own WHERE bad AND rule IS NOT NULL GROUP BY 1 ORDER BY 2 DESC, 1 LIMIT 3

-- name: own_proofs
WITH first AS (SELECT job, named FROM own WHERE bad ORDER BY named DESC, start DESC NULLS LAST, job LIMIT 3)
SELECT job, name, start, verdict, rule, summary, source, line, text FROM job JOIN first USING (job)
    ORDER BY named DESC, start DESC NULLS LAST, job

-- name: new
WITH span AS (SELECT min(start) AS first_job, max(start) AS last_job FROM whole.job), seen AS (
    SELECT 'cause' AS kind, rule AS name, job, bad, start FROM whole.job WHERE bad
    UNION ALL SELECT 'image', image, job, bad, start FROM whole.job
    UNION ALL SELECT 'release', release, job, bad, start FROM whole.job
    UNION ALL SELECT 'setting', name || '=' || value, job, bad, start FROM whole.setting
    UNION ALL SELECT 'host', host, job, bad, start FROM whole.host
), fresh AS (
    SELECT kind, name, min(start) AS first FROM seen, span WHERE name IS NOT NULL
    AND last_job - first_job >= INTERVAL 7 DAY GROUP BY kind, name, last_job HAVING first > last_job - INTERVAL 7 DAY
), counted AS (
    SELECT kind, name, first, count(DISTINCT job) AS jobs, count(DISTINCT job) FILTER (bad) AS bad
    FROM fresh JOIN seen USING (kind, name) GROUP BY kind, name, first
) SELECT * FROM counted QUALIFY row_number() OVER (PARTITION BY kind ORDER BY bad DESC, jobs DESC, name) <= 20
    ORDER BY kind, bad DESC, jobs DESC, name

-- name: changes
-- Images and releases that came after the first day, with the others that were in use the week before; without the jobs
-- on some hosts.
WITH others AS (
    SELECT * FROM whole.job WHERE job NOT IN (SELECT job FROM whole.host WHERE list_contains($hosts, host))
), used AS (
    SELECT 'image' AS kind, image AS name, bad, start, rule FROM others
    UNION ALL SELECT 'release', release, bad, start, rule FROM others
), changed AS (
    SELECT kind, name, min(start) AS first, count(*) AS jobs, count_if(bad) AS bad, mode(rule) FILTER (bad) AS rule
    FROM used WHERE name IS NOT NULL GROUP BY 1, 2
    HAVING first > (SELECT min(start) FROM others) + INTERVAL 1 DAY AND jobs >= 10
) SELECT c.*, mode(b.name) AS name_before, count(*) AS jobs_before, count_if(b.bad) AS bad_before
    FROM changed c JOIN used b ON b.kind = c.kind AND b.name <> c.name
    AND b.start BETWEEN c.first - INTERVAL 7 DAY AND c.first GROUP BY ALL ORDER BY c.kind, c.name

-- name: by
SELECT p.name, count(*) AS jobs, count_if(bad) AS bad, count_if(bad AND named) AS named, min(start) AS first,
    max(start) AS last FROM job JOIN (SELECT job, name, bool_or(named) AS named FROM uses WHERE kind = $kind GROUP BY ALL) p
    USING (job) GROUP BY p.name
