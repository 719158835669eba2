-- The queries of a report, by name. Values are parameters; what stands in braces is one of the tables here.

-- name: statistics
-- The probability, after correction for the number of comparisons (Holm), below which something is suspected.
CREATE TEMP MACRO alpha() AS 0.01;
-- The probability, before correction, above which nothing is looked at more closely.
CREATE TEMP MACRO worthwhile() AS 0.05;
-- Bad jobs below which nothing is suspected.
CREATE TEMP MACRO least_bad() AS 3;
-- How many times as often jobs must be bad with a suspect: among very many jobs, small differences are significant.
CREATE TEMP MACRO least_ratio() AS 1.5;
-- Jobs of like size and day that there must be on average, for them to be compared with each other only.
CREATE TEMP MACRO least_in_stratum() AS 50;
-- The logarithm of the number of ways to choose some of n.
CREATE TEMP MACRO choose(n, k) AS lgamma(n + 1) - lgamma(k + 1) - lgamma(n - k + 1);
-- The numbers of bad ones from some on, up to eight standard deviations: the rest is too unlikely to count.
CREATE TEMP MACRO or_more(bad, jobs) AS range(bad, least(jobs, bad + 100 + 4 * sqrt(jobs)::BIGINT) + 1);
-- The logarithm of a sum, from the logarithms of its first term and of all.
CREATE TEMP MACRO log_sum(first, logs) AS first + ln(list_sum([exp(x - first) for x in logs]));
-- The logarithm of the probability of as many bad ones among some jobs, or more, if which ones are bad were chance; of
-- 1 where these are no more than is to be expected.
CREATE TEMP MACRO fisher(bad, jobs, all_bad, everything) AS if(bad * everything <= jobs * all_bad, 0.0, log_sum(
    choose(all_bad, bad) + choose(everything - all_bad, jobs - bad),
    [choose(all_bad, n) + choose(everything - all_bad, jobs - n) for n in or_more(bad, least(jobs, all_bad))])
    - choose(everything, jobs));
-- The same if each job is bad with some probability.
CREATE TEMP MACRO log_binomial(bad, jobs, rate) AS
    choose(jobs, bad) + bad * ln(greatest(rate, 1e-300)) + (jobs - bad) * ln(greatest(1 - rate, 1e-300));
CREATE TEMP MACRO binomial(bad, jobs, rate) AS if(bad <= jobs * rate, 0.0,
    log_sum(log_binomial(bad, jobs, rate), [log_binomial(n, jobs, rate) for n in or_more(bad, jobs)]));
-- A bound of the interval in which a rate lies with a probability of 95 % (Wilson): the lower (-1) or the upper one (1).
CREATE TEMP MACRO wilson(bad, jobs, side) AS greatest(0, least(1, coalesce(
    (bad / jobs + 1.959964 ** 2 / jobs / 2 + side * 1.959964 * sqrt(
    bad / jobs * (1 - bad / jobs) / jobs + (1.959964 / jobs) ** 2 / 4)) / (1 + 1.959964 ** 2 / jobs), (side + 1) / 2)));
-- Bad ones of some jobs as a report has them.
CREATE TEMP MACRO rated(bad, jobs) AS {{
    'bad': bad, 'jobs': jobs, 'rate': round(coalesce(bad / nullif(jobs, 0), 0), 4),
    'low': round(wilson(bad, nullif(jobs, 0), -1), 4), 'high': round(wilson(bad, nullif(jobs, 0), 1), 4)}};
-- A probability from its logarithm, with two digits.
CREATE TEMP MACRO brief(chance) AS printf('%.2g', least(1.0, exp(chance)))::DOUBLE

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
    SELECT job, bad, day, if(count(*) OVER () >= least_in_stratum() * (SELECT count(DISTINCT size) FROM sized), size, 0) AS size
    FROM sized
), by_day AS (
    SELECT job, bad, size, if(count(*) OVER () >= least_in_stratum() * (SELECT count(DISTINCT (size, day)) FROM by_size), day, NULL)
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
CREATE OR REPLACE TEMP TABLE parts AS SELECT kind || ' ' || name AS thing, kind, name, host, number, bool_or(named) AS named
    FROM uses JOIN compared USING (job) WHERE kind IN ('nic', 'gpu') AND host = $host GROUP BY ALL

-- name: counts
-- How often jobs were bad with something, and how often others of like size and day were, where there are others. The
-- chance of that is the larger one by Fisher's exact test and by these others. Only what is worth a look.
CREATE OR REPLACE TEMP TABLE counts AS WITH strata AS (
    SELECT stratum, count(*) AS jobs, count_if(bad) AS bad FROM compared GROUP BY 1
), total AS (
    SELECT sum(jobs)::BIGINT AS everything, sum(bad)::BIGINT AS all_bad FROM strata
), often AS (
    SELECT thing, count(*) AS jobs, count_if(bad)::BIGINT AS bad, count_if(bad AND named) AS named, everything, all_bad
    FROM {pairs} JOIN compared USING (number), total GROUP BY thing, everything, all_bad
    HAVING bad >= least_bad() AND jobs < everything AND bad * (everything - jobs) > least_ratio() * jobs * (all_bad - bad)
), worth AS MATERIALIZED (
    SELECT *, fisher(bad, jobs, all_bad, everything) AS by_fisher FROM often WHERE by_fisher <= ln(worthwhile())
), cells AS (
    SELECT thing, stratum, count(*) AS jobs, count_if(bad) AS bad
    FROM {pairs} JOIN compared USING (number) SEMI JOIN worth USING (thing) GROUP BY ALL
), likes AS (
    SELECT thing, sum(c.jobs)::BIGINT AS compared, sum(c.bad)::BIGINT AS seen,
        round(sum(c.jobs * (s.bad - c.bad) / (s.jobs - c.jobs)), 9) AS expected
    FROM cells c JOIN strata s USING (stratum) WHERE s.jobs > c.jobs GROUP BY 1
) SELECT thing, kind, name, host, bad, jobs, named, expected / compared * jobs AS expected,
    bad / greatest(expected / compared * jobs, 0.5) AS ratio,
    greatest(by_fisher, binomial(seen, compared, expected / compared)) AS chance
    FROM worth JOIN likes USING (thing) JOIN (SELECT DISTINCT thing, kind, name, host FROM {things}) USING (thing)

-- name: guilty
-- The surest first; of those that are equally sure the coarser.
SELECT * EXCLUDE chance, chance + ln(greatest($comparisons, 1)) AS chance, rated(bad, jobs) AS rated FROM counts
    WHERE counts.chance <= ln(alpha() / greatest($comparisons, 1)) AND ratio >= least_ratio()
    ORDER BY counts.chance, list_position(['image', 'release', 'setting', 'host'], kind), thing

-- name: part
-- The NIC or GPU that is to blame for its host: jobs without it are sound, and would hardly be if they had the fault,
-- too; or findings name it in most of its bad jobs, and all others in less than half as many.
SELECT * EXCLUDE chance, chance + ln(greatest($comparisons, 1)) AS chance FROM (
    SELECT *, 2 * named > bad AS is_named,
        row_number() OVER ranks = 1 AND is_named AND coalesce(2 * lead(named) OVER ranks < named, true) AS is_singled_out,
        binomial($jobs - jobs - $bad + bad, $jobs - jobs, 1 - bad / jobs) < ln(if(is_named, alpha(), alpha() / 100))
        AND binomial($bad - bad, $jobs - jobs, $expected / $jobs) > ln(alpha()) AS is_alone
    FROM counts WINDOW ranks AS (ORDER BY named DESC, thing)
) WHERE is_alone OR is_singled_out ORDER BY NOT is_alone, NOT is_named, chance LIMIT 1

-- name: mine
CREATE OR REPLACE TEMP TABLE mine AS SELECT number FROM {pairs} JOIN compared USING (number) WHERE thing = $thing

-- name: together
-- Of some things those that were in all of these jobs.
SELECT kind || ' ' || name AS name FROM things JOIN pairs USING (thing) SEMI JOIN mine USING (number)
    WHERE list_contains($things, thing) GROUP BY ALL HAVING count(*) = (SELECT count(*) FROM mine) ORDER BY 1

-- name: set_aside
DELETE FROM compared WHERE number IN (FROM mine)

-- name: totals
SELECT min(start) AS first, max(start) AS last, count(*) AS jobs, count(*) FILTER (start IS NULL) AS undated,
    (SELECT count(DISTINCT host) FROM host) AS hosts, rated(count(*) FILTER (bad), count(*)) AS bad,
    {{'older': (SELECT count(*) FROM whole.job WHERE start IS NOT NULL) - count(start),
    'undated': (SELECT count(*) FROM whole.job WHERE start IS NULL) - undated}} AS left_out,
    {{'ok': count(*) FILTER (verdict = 'ok'), 'unknown': count(*) FILTER (verdict = 'unknown'),
    'degraded': count(*) FILTER (verdict = 'degraded'), 'failed': count(*) FILTER (verdict = 'failed')}} AS verdicts FROM job

-- name: days
SELECT day, count_if(verdict = 'ok') AS ok, count_if(verdict = 'unknown') AS unknown,
    count_if(verdict = 'degraded') AS degraded, count_if(verdict = 'failed') AS failed,
    unnest(rated(count_if(bad), count(*))) FROM job WHERE day IS NOT NULL GROUP BY 1 ORDER BY 1

-- name: causes
WITH per_day AS (
    SELECT coalesce(rule, 'none') AS rule, any_value(category) AS category, day, count(*) AS bad, min(start) AS first,
        max(start) AS last FROM job WHERE bad GROUP BY 1, day
) SELECT rule, any_value(category) AS category, min(first) AS first, max(last) AS last,
    unnest(rated(sum(per_day.bad)::BIGINT, any_value(everything))),
    coalesce(list({{'day': day, 'bad': per_day.bad}} ORDER BY day) FILTER (day IS NOT NULL), []) AS days
    FROM per_day, (SELECT count(*) AS everything FROM job) GROUP BY 1 ORDER BY sum(per_day.bad) DESC, 1 LIMIT 12

-- name: own
CREATE OR REPLACE TEMP TABLE own AS SELECT job, start, bad, rule, named FROM job JOIN (
    SELECT job, bool_or(named) AS named FROM uses WHERE kind = $kind AND name = $name GROUP BY job) USING (job)

-- name: own_totals
SELECT unnest(rated($bad::BIGINT, $jobs::BIGINT)), round($expected, 1) AS expected, round($ratio, 2) AS ratio,
    round(((SELECT count(*) FROM job WHERE bad) - count(*) FILTER (bad))
    / greatest((SELECT count(*) FROM job) - count(*), 1), 4) AS others, brief($chance) AS chance,
    min(start) FILTER (bad) AS first, max(start) FILTER (bad) AS last FROM own

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
) SELECT kind, name, first, unnest(rated(bad, jobs)) FROM (
    FROM counted QUALIFY row_number() OVER (PARTITION BY kind ORDER BY bad DESC, jobs DESC, name) <= 20)
    ORDER BY kind, bad DESC, jobs DESC, name

-- name: changes
-- Images and releases that came after the first day, and with which jobs are worse than with the others that were in use
-- the week before; without the jobs on some hosts.
WITH others AS (
    SELECT * FROM whole.job WHERE job NOT IN (SELECT job FROM whole.host WHERE list_contains($hosts, host))
), used AS (
    SELECT 'image' AS kind, image AS name, bad, start, rule FROM others
    UNION ALL SELECT 'release', release, bad, start, rule FROM others
), changed AS (
    SELECT kind, name, min(start) AS first, count(*) AS jobs, count_if(bad)::BIGINT AS bad, mode(rule) FILTER (bad) AS rule
    FROM used WHERE name IS NOT NULL GROUP BY 1, 2
    HAVING min(start) > (SELECT min(start) FROM others) + INTERVAL 1 DAY AND count(*) >= 10
), compared AS (
    SELECT c.*, mode(b.name) AS name_before, count(*) AS jobs_before, count_if(b.bad)::BIGINT AS bad_before
    FROM changed c JOIN used b ON b.kind = c.kind AND b.name <> c.name
    AND b.start BETWEEN c.first - INTERVAL 7 DAY AND c.first GROUP BY ALL
), tested AS (
    SELECT *, fisher(bad, jobs, bad + bad_before, jobs + jobs_before) AS by_fisher,
        by_fisher + ln(count(*) OVER () + 1 - row_number() OVER (ORDER BY by_fisher)) AS chance FROM compared
) SELECT kind, name, first AS since, rule, unnest(rated(bad, jobs)), brief(chance) AS chance,
    struct_pack(name := name_before, bad := bad_before, jobs := jobs_before, rate := rated(bad_before, jobs_before).rate,
    low := rated(bad_before, jobs_before).low, high := rated(bad_before, jobs_before).high) AS before
    FROM tested WHERE chance < ln(alpha()) ORDER BY by_fisher

-- name: by
SELECT * FROM (
    SELECT used.name AS name, list_contains($suspects, used.name) AS suspect, count_if(bad AND named) AS named,
        min(start) AS first, max(start) AS last, unnest(rated(count_if(bad), count(*))) FROM job JOIN (
        SELECT job, name, bool_or(named) AS named FROM uses WHERE kind = $kind GROUP BY ALL) used USING (job) GROUP BY 1
) ORDER BY suspect DESC, low DESC, name LIMIT 200
