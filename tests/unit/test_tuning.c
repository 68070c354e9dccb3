/* The tuning database: what is put comes back, the nearest shape stands in, damage loses nothing. */
#include "host/kernel/tuning.h"

#include "host/base/file.h"
#include "host/base/thread.h"

#include <setjmp.h>
#include <sqlite3.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static char folder[] = "/tmp/crumb-tuning-XXXXXX";
static char path[256];

static crumb_tuning_record record_of(uint32_t m, uint32_t k, uint32_t n, const char *kernel, const char *knobs,
                                     double ratio) {
    crumb_tuning_record r = {.key = {.device = "a processor",
                                     .target = "avx2",
                                     .source = "1234",
                                     .weights = "u2",
                                     .m = m,
                                     .k = k,
                                     .n = n,
                                     .group = k,
                                     .act = CRUMB_ACT_ROW,
                                     .n_threads = 2},
                             .ratio = ratio,
                             .ns = 1e6 * ratio,
                             .rounds = CRUMB_TUNING_CONFIRMED};
    snprintf(r.kernel, sizeof r.kernel, "%s", kernel);
    snprintf(r.knobs, sizeof r.knobs, "%s", knobs);
    r.key.group = 128;
    return r;
}

static crumb_tuning *open_database(bool create) {
    crumb_tuning *t;
    crumb_error err = {0};
    char note[256];
    assert_int_equal(crumb_tuning_open(path, create, &t, note, &err), CRUMB_OK);
    assert_string_equal(note, "");
    return t;
}

static void put(crumb_tuning *t, crumb_tuning_record r) {
    crumb_error err = {0};
    if (crumb_tuning_put(t, &r, &err) != CRUMB_OK) fail_msg("%s", err.message);
}

static bool count(void *user, const crumb_tuning_record *record) {
    (void)record;
    ++*(int *)user;
    return true;
}

static int count_all(crumb_tuning *t) {
    int n = 0;
    const crumb_tuning_key any = {.act = UINT32_MAX};
    assert_int_equal(crumb_tuning_each(t, &any, count, &n, NULL), CRUMB_OK);
    return n;
}

static int fresh(void **state) {
    (void)state;
    return unlink(path) == 0 || !crumb_file_exists(path) ? 0 : -1;
}

static void without_a_file_nothing_is_found_and_nothing_made(void **state) {
    (void)state;
    crumb_tuning *t = open_database(false);
    crumb_tuning_record r = record_of(64, 64, 1, "a", "", 0.5), out;
    bool found = true;
    assert_int_equal(crumb_tuning_find(t, &r.key, &out, &found, NULL), CRUMB_OK);
    assert_false(found);
    assert_int_equal(crumb_tuning_put(t, &r, NULL), CRUMB_ERR_IO);
    crumb_tuning_close(t);
    assert_false(crumb_file_exists(path));
}

static void the_best_of_the_nearest_shape_is_found(void **state) {
    (void)state;
    crumb_tuning *t = open_database(true);
    put(t, record_of(2048, 2048, 1, "a", "", 1));
    put(t, record_of(2048, 2048, 1, "a", "near=2048", 0.9));
    put(t, record_of(2048, 2048, 1, "b", "near=1024", 0.8));
    put(t, record_of(8192, 2048, 1, "c", "", 0.7));
    put(t, record_of(8192, 2048, 512, "d", "", 0.1));
    crumb_tuning_close(t);
    t = open_database(false);
    const struct {
        uint32_t m, k, n;
        const char *kernel;
    } cases[] = {
        {2048, 2048, 1, "b"}, {8192, 2048, 1, "c"}, {3000, 2048, 1, "b"}, {6000, 2048, 2, "c"}, {2048, 2048, 64, "d"}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        crumb_tuning_record wanted = record_of(cases[i].m, cases[i].k, cases[i].n, "", "", 1), out;
        bool found = false;
        assert_int_equal(crumb_tuning_find(t, &wanted.key, &out, &found, NULL), CRUMB_OK);
        assert_true(found);
        assert_string_equal(out.kernel, cases[i].kernel);
    }
    crumb_tuning_record other = record_of(2048, 2048, 1, "", "", 1), out;
    bool found = true;
    other.key.n_threads = 4; /* measured for another number of threads, nothing is known */
    assert_int_equal(crumb_tuning_find(t, &other.key, &out, &found, NULL), CRUMB_OK);
    assert_false(found);
    crumb_tuning_close(t);
}

static void put_rounds(crumb_tuning *t, const char *kernel, double ratio, uint32_t rounds) {
    crumb_tuning_record r = record_of(64, 128, 1, kernel, "", ratio);
    r.rounds = rounds;
    put(t, r);
}

static void assert_best(crumb_tuning *t, const char *kernel) {
    crumb_tuning_record wanted = record_of(64, 128, 1, "", "", 1), out;
    bool found;
    assert_int_equal(crumb_tuning_find(t, &wanted.key, &out, &found, NULL), CRUMB_OK);
    assert_true(found == (kernel != NULL));
    if (kernel) assert_string_equal(out.kernel, kernel);
}

static bool keep_first(void *user, const crumb_tuning_record *record) {
    *(crumb_tuning_record *)user = *record;
    return false;
}

/* What leads by a few rounds, or elsewhere, may lead by luck; the default needs no more than a median. */
static void what_is_not_confirmed_is_not_found(void **state) {
    (void)state;
    const crumb_tuning_key any = {.act = UINT32_MAX};
    crumb_tuning_record first;
    uint64_t n_removed;
    crumb_tuning *t = open_database(true);
    put_rounds(t, "elsewhere", 1e-9, 0);
    put_rounds(t, "lucky", 0.1, 1);
    put_rounds(t, "finalist", 0.2, 15);
    put_rounds(t, "default", 1, CRUMB_TUNING_ROUNDS - 1);
    assert_best(t, NULL);
    assert_int_equal(crumb_tuning_digest(t, "another"), 0);
    put_rounds(t, "default", 1, CRUMB_TUNING_ROUNDS);
    assert_best(t, "default");
    const uint64_t digest = crumb_tuning_digest(t, "another");
    put_rounds(t, "confirmed", 0.9, CRUMB_TUNING_CONFIRMED);
    assert_best(t, "confirmed");
    assert_int_not_equal(crumb_tuning_digest(t, "another"), digest);
    assert_int_equal(crumb_tuning_each(t, &any, keep_first, &first, NULL), CRUMB_OK);
    assert_string_equal(first.kernel, "confirmed");
    assert_int_equal(crumb_tuning_prune(t, "a processor", "1234", &n_removed, NULL), CRUMB_OK);
    assert_int_equal(n_removed, 4);
    assert_best(t, "confirmed");
    crumb_tuning_close(t);
}

/* Of these rounds so many take as much less than the default as the others take more. */
static double confirmed(size_t n_faster, double by) {
    double ratios[CRUMB_TUNING_CONFIRMED];
    for (size_t i = 0; i < CRUMB_TUNING_CONFIRMED; i++)
        ratios[i] = i * 7 % CRUMB_TUNING_CONFIRMED < n_faster ? 1 - by : 1 + by;
    return crumb_tuning_confirmed(ratios);
}

static void a_lead_within_the_noise_is_none(void **state) {
    (void)state;
    assert_true(confirmed(25, 0.25) == 0.75);
    assert_true(confirmed(18, 0.25) == 0.75);
    assert_true(confirmed(17, 0.25) == 1.25);
    assert_true(confirmed(13, 0.25) == 1.25);
    assert_true(confirmed(0, 0.25) == 1.25);
}

static void a_figure_from_elsewhere_replaces_no_measurement(void **state) {
    (void)state;
    const crumb_tuning_key any = {.act = UINT32_MAX};
    crumb_tuning_record first;
    crumb_tuning *t = open_database(true);
    const struct {
        double ratio;
        uint32_t rounds;
        double kept;
    } steps[] = {{0.1, 0, 0.1}, {0.2, 0, 0.2}, {0.9, 3, 0.9}, {0.1, 0, 0.9}};
    for (size_t i = 0; i < sizeof steps / sizeof steps[0]; i++) {
        put_rounds(t, "a", steps[i].ratio, steps[i].rounds);
        assert_int_equal(crumb_tuning_each(t, &any, keep_first, &first, NULL), CRUMB_OK);
        assert_true(first.ratio == steps[i].kept);
    }
    assert_int_equal(count_all(t), 1);
    crumb_tuning_close(t);
}

static void a_measurement_replaces_the_one_before(void **state) {
    (void)state;
    crumb_tuning *t = open_database(true);
    for (int i = 1; i <= 3; i++) put(t, record_of(64, 128, 1, "a", "near=64", 1.0 / i));
    assert_int_equal(count_all(t), 1);
    crumb_tuning_record wanted = record_of(64, 128, 1, "", "", 1), out;
    bool found;
    assert_int_equal(crumb_tuning_find(t, &wanted.key, &out, &found, NULL), CRUMB_OK);
    assert_true(found && out.ratio == 1.0 / 3 && out.rounds == CRUMB_TUNING_CONFIRMED && out.key.group == 128);
    assert_string_equal(out.knobs, "near=64");
    crumb_tuning_close(t);
}

static void pruning_keeps_the_best_and_other_devices(void **state) {
    (void)state;
    crumb_tuning *t = open_database(true);
    put(t, record_of(64, 128, 1, "a", "", 1));
    put(t, record_of(64, 128, 1, "b", "", 0.5));
    put(t, record_of(64, 128, 1, "b", "near=64", 0.5));
    crumb_tuning_record old = record_of(64, 128, 1, "b", "", 0.4), elsewhere = record_of(64, 128, 1, "b", "", 0.4);
    snprintf(old.key.source, sizeof old.key.source, "old");
    snprintf(elsewhere.key.source, sizeof elsewhere.key.source, "old");
    snprintf(elsewhere.key.device, sizeof elsewhere.key.device, "another processor");
    put(t, old);
    put(t, elsewhere);
    uint64_t n_removed;
    assert_int_equal(crumb_tuning_prune(t, "a processor", "1234", &n_removed, NULL), CRUMB_OK);
    assert_int_equal(n_removed, 3);
    assert_int_equal(count_all(t), 2);
    crumb_tuning_close(t);
}

/* What is found changes with the best of a key, and of other devices than that of the kernels that are asked about. */
static void the_digest_changes_with_what_is_found(void **state) {
    (void)state;
    crumb_tuning *t = open_database(true);
    assert_int_equal(crumb_tuning_digest(t, "another"), 0);
    put(t, record_of(64, 128, 1, "a", "near=64", 0.5));
    const uint64_t first = crumb_tuning_digest(t, "another");
    assert_int_not_equal(first, 0);
    assert_int_equal(crumb_tuning_digest(t, "a processor"), 0);
    put(t, record_of(64, 128, 1, "a", "near=128", 0.7)); /* no better */
    put(t, record_of(64, 128, 1, "a", "near=64", 0.4));  /* the same once more */
    assert_int_equal(crumb_tuning_digest(t, "another"), first);
    put(t, record_of(64, 128, 1, "b", "", 0.3));
    const uint64_t second = crumb_tuning_digest(t, "another");
    assert_int_not_equal(second, first);
    put(t, record_of(64, 256, 1, "b", "", 1));
    assert_int_not_equal(crumb_tuning_digest(t, "another"), second);
    crumb_tuning_close(t);
    t = open_database(false);
    assert_int_not_equal(crumb_tuning_digest(t, "another"), 0);
    crumb_tuning_close(t);
}

static void overwrite(const char *text, size_t n, long at) {
    FILE *f = fopen(path, at ? "r+b" : "wb");
    assert_non_null(f);
    assert_int_equal(fseek(f, at, SEEK_SET), 0);
    assert_int_equal(fwrite(text, 1, n, f), n);
    assert_int_equal(fclose(f), 0);
}

/* The damaged file must still be there, under the name that the note tells. */
static void check_put_aside(int expected_number) {
    crumb_tuning *t;
    crumb_error err = {0};
    char note[256], aside[300];
    snprintf(aside, sizeof aside, "%s.damaged-%d", path, expected_number);
    if (crumb_tuning_open(path, true, &t, note, &err) != CRUMB_OK) fail_msg("%s", err.message);
    assert_non_null(strstr(note, aside));
    assert_non_null(strstr(note, ".dump"));
    assert_true(crumb_file_exists(aside));
    assert_int_equal(count_all(t), 0);
    put(t, record_of(64, 128, 1, "a", "", 1));
    crumb_tuning_close(t);
}

static void damage_is_put_aside(void **state) {
    (void)state;
    char junk[8192];
    memset(junk, 'x', sizeof junk);
    overwrite(junk, sizeof junk, 0);
    check_put_aside(1);
    crumb_tuning *t = open_database(true);
    for (uint32_t i = 1; i < 500; i++) put(t, record_of(i, 128, 1, "a", "near=64", 1));
    crumb_tuning_close(t);
    overwrite(junk, 4096, 4096); /* a page in the middle */
    check_put_aside(2);
    unlink(path);
}

/* One of the programs that find the same damage, and keep something at once. */
static crumb_status open_damaged(void *ctx, uint64_t i, crumb_error *err) {
    crumb_tuning *t;
    char note[256];
    (void)ctx;
    CRUMB_TRY(crumb_tuning_open(path, true, &t, note, err));
    const crumb_tuning_record r = record_of((uint32_t)i + 1, 128, 1, "a", "", 1);
    const crumb_status status = crumb_tuning_put(t, &r, err);
    crumb_tuning_close(t);
    return status;
}

static size_t count_put_aside(void) {
    static crumb_folder_entry entries[256];
    char below[300];
    snprintf(below, sizeof below, "%s/below", folder);
    const size_t n = crumb_folder_list(below, "", entries, 256);
    size_t n_aside = 0;
    for (size_t i = 0; i < n; i++) n_aside += strstr(entries[i].name, ".damaged-") != NULL;
    return n_aside;
}

static void damage_that_many_find_is_put_aside_once(void **state) {
    (void)state;
    enum { ROUNDS = 20, PROGRAMS = 8 };
    char junk[8192];
    memset(junk, 'x', sizeof junk);
    const size_t n_before = count_put_aside();
    for (int round = 0; round < ROUNDS; round++) {
        crumb_error err = {0};
        overwrite(junk, sizeof junk, 0);
        if (crumb_parallel_for(PROGRAMS, PROGRAMS, open_damaged, NULL, &err) != CRUMB_OK) fail_msg("%s", err.message);
        crumb_tuning *t = open_database(false);
        assert_int_equal(count_all(t), PROGRAMS);
        crumb_tuning_close(t);
    }
    assert_int_equal(count_put_aside(), n_before + ROUNDS);
}

static void a_newer_schema_is_left_alone(void **state) {
    (void)state;
    crumb_tuning_close(open_database(true));
    overwrite("\0\0\0\x63", 4, 60); /* user_version in the header of the file */
    crumb_tuning *t;
    crumb_error err = {0};
    char note[256];
    assert_int_equal(crumb_tuning_open(path, true, &t, note, &err), CRUMB_ERR_FORMAT);
    assert_non_null(strstr(err.message, "newer"));
    assert_non_null(strstr(err.message, "99"));
    assert_null(t);
    assert_true(crumb_file_exists(path));
}

/* Does what the SQL says to the file, as another program would. */
static void execute(const char *sql) {
    sqlite3 *db;
    char *message = NULL;
    assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
    if (sqlite3_exec(db, sql, NULL, NULL, &message) != SQLITE_OK) fail_msg("%s", message);
    assert_int_equal(sqlite3_close(db), SQLITE_OK);
}

/* The first column of a query's first row. */
static int64_t ask(const char *sql) {
    sqlite3 *db;
    sqlite3_stmt *s;
    assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
    assert_int_equal(sqlite3_prepare_v2(db, sql, -1, &s, NULL), SQLITE_OK);
    assert_int_equal(sqlite3_step(s), SQLITE_ROW);
    const int64_t value = sqlite3_column_int64(s, 0);
    sqlite3_finalize(s);
    assert_int_equal(sqlite3_close(db), SQLITE_OK);
    return value;
}

/* Version 1, as the first crumb that kept measurements made it, with what another crumb and another machine measured.
 * This text stays as it is when there are later versions. */
static const char version_1[] =
    "CREATE TABLE measurement(device TEXT NOT NULL, target TEXT NOT NULL, source TEXT NOT NULL, weights TEXT NOT NULL,"
    " m INTEGER NOT NULL, k INTEGER NOT NULL, n INTEGER NOT NULL, grp INTEGER NOT NULL, act INTEGER NOT NULL,"
    " threads INTEGER NOT NULL, kernel TEXT NOT NULL, knobs TEXT NOT NULL, ratio REAL NOT NULL, ns REAL NOT NULL,"
    " rounds INTEGER NOT NULL,"
    " PRIMARY KEY(device, target, source, weights, m, k, n, grp, act, threads, kernel, knobs)) WITHOUT ROWID;"
    "PRAGMA user_version = 1;"
    "INSERT INTO measurement VALUES"
    "('a processor','avx2','1234','u2',2048,1024,1,128,1,2,'gemv_u2_i8__avx2','near=512',0.75,1250.5,15),"
    "('a processor','avx2','0ld','u2',2048,1024,1,128,1,2,'a kernel of then','knob=1',0.5,1000,9),"
    "('another','dpas','1234','c4',64,128,512,32,2,0,'gemm_c4_8x256__dpas16','',1,10,3);";

static void an_older_database_loses_nothing(void **state) {
    (void)state;
    execute(version_1);
    for (int create = 0; create < 2; create++) {
        crumb_tuning *t = open_database(create);
        crumb_tuning_record out;
        crumb_tuning_key like = {.device = "a processor", .source = "1234", .act = UINT32_MAX};
        assert_int_equal(count_all(t), 3);
        assert_int_equal(crumb_tuning_each(t, &like, keep_first, &out, NULL), CRUMB_OK);
        assert_true(out.key.m == 2048 && out.ratio == 0.75 && out.ns == 1250.5 && out.rounds == 15);
        assert_string_equal(out.kernel, "gemv_u2_i8__avx2");
        assert_string_equal(out.knobs, "near=512");
        like = (crumb_tuning_key){.source = "0ld", .act = UINT32_MAX};
        assert_int_equal(crumb_tuning_each(t, &like, keep_first, &out, NULL), CRUMB_OK);
        assert_string_equal(out.kernel, "a kernel of then");
        like = (crumb_tuning_key){.device = "another", .act = UINT32_MAX};
        assert_int_equal(crumb_tuning_each(t, &like, keep_first, &out, NULL), CRUMB_OK);
        assert_true(out.key.m == 64 && out.key.n == 512 && out.key.group == 32 && out.key.act == CRUMB_ACT_GROUP);
        crumb_tuning_close(t);
    }
    crumb_tuning *t = open_database(true);
    put(t, record_of(64, 128, 1, "a", "", 1));
    assert_int_equal(count_all(t), 4);
    crumb_tuning_close(t);
}

/* No version: a file that was begun and never filled, or another program's, whose tables stay. */
static void a_database_without_a_version_keeps_what_it_has(void **state) {
    (void)state;
    crumb_tuning_close(open_database(true)); /* makes the folder */
    overwrite("", 0, 0);
    crumb_tuning_close(open_database(false));
    assert_int_equal(ask("SELECT count(*) FROM sqlite_master"), 0);
    execute("CREATE TABLE other(x); INSERT INTO other VALUES(7);");
    crumb_tuning *t = open_database(false);
    assert_int_equal(count_all(t), 0);
    crumb_tuning_close(t);
    assert_int_equal(ask("SELECT count(*) FROM sqlite_master"), 1);
    t = open_database(true);
    put(t, record_of(64, 128, 1, "a", "", 1));
    crumb_tuning_close(t);
    assert_int_equal(ask("SELECT x FROM other"), 7);
    assert_int_equal(ask("SELECT count(*) FROM measurement"), 1);
}

/* As what `sqlite3 FILE .dump` makes of a damaged one has none. */
static void the_table_without_a_version_is_taken(void **state) {
    (void)state;
    execute(version_1);
    execute("PRAGMA user_version = 0");
    for (int create = 0; create < 2; create++) {
        crumb_tuning *t = open_database(create);
        assert_int_equal(count_all(t), 3);
        crumb_tuning_close(t);
        assert_int_equal(ask("PRAGMA user_version"), create);
    }
    crumb_tuning *t = open_database(true);
    put(t, record_of(64, 128, 1, "a", "", 1));
    assert_int_equal(count_all(t), 4);
    crumb_tuning_close(t);
}

/* Nothing can be kept there, and nothing that is there is touched. */
static void another_programs_table_of_that_name_is_left_alone(void **state) {
    (void)state;
    execute("CREATE TABLE measurement(x); INSERT INTO measurement VALUES(7);");
    crumb_tuning *t;
    crumb_error err = {0};
    char note[256];
    assert_int_equal(crumb_tuning_open(path, true, &t, note, &err), CRUMB_ERR_IO);
    assert_non_null(strstr(err.message, "already exists"));
    assert_non_null(strstr(err.message, "--tuning"));
    assert_null(t);
    assert_int_equal(ask("SELECT x FROM measurement"), 7);
    assert_int_equal(ask("PRAGMA user_version"), 0);
}

static crumb_status write_many(void *ctx, uint64_t i, crumb_error *err) {
    (void)ctx;
    crumb_tuning *t;
    char note[256];
    CRUMB_TRY(crumb_tuning_open(path, true, &t, note, err));
    crumb_status status = CRUMB_OK;
    for (uint32_t j = 0; j < 50 && status == CRUMB_OK; j++) {
        crumb_tuning_record r = record_of((uint32_t)i * 50 + j + 1, 128, 1, "a", "", 1);
        status = crumb_tuning_put(t, &r, err);
    }
    crumb_tuning_close(t);
    return status;
}

static void writers_wait_for_each_other(void **state) {
    (void)state;
    crumb_error err = {0};
    if (crumb_parallel_for(4, 4, write_many, NULL, &err) != CRUMB_OK) fail_msg("%s", err.message);
    crumb_tuning *t = open_database(false);
    assert_int_equal(count_all(t), 200);
    crumb_tuning_close(t);
}

static crumb_status write_many_at_once(void *ctx, uint64_t i, crumb_error *err) {
    (void)ctx;
    crumb_tuning *t;
    char note[256];
    CRUMB_TRY(crumb_tuning_open(path, true, &t, note, err));
    crumb_status status = CRUMB_OK;
    for (uint32_t j = 0; j < 5 && status == CRUMB_OK; j++) {
        status = crumb_tuning_begin(t, err);
        if (status != CRUMB_OK) break;
        for (uint32_t n = 0; n < 10 && status == CRUMB_OK; n++) {
            crumb_tuning_record r = record_of((uint32_t)i * 50 + j * 10 + n + 1, 128, 1, "a", "", 1);
            status = crumb_tuning_put(t, &r, err);
        }
        status = crumb_tuning_end(t, status, err);
    }
    crumb_tuning_close(t);
    return status;
}

/* How often the file has been written to, as its header counts. */
static uint32_t count_writes(void) {
    unsigned char n[4];
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    assert_int_equal(fseek(f, 24, SEEK_SET), 0);
    assert_int_equal(fread(n, 1, sizeof n, f), sizeof n);
    assert_int_equal(fclose(f), 0);
    return (uint32_t)n[0] << 24 | (uint32_t)n[1] << 16 | (uint32_t)n[2] << 8 | n[3];
}

static void many_are_written_at_once(void **state) {
    (void)state;
    crumb_error err = {0};
    crumb_tuning_close(open_database(true));
    const uint32_t n_before = count_writes();
    if (crumb_parallel_for(4, 4, write_many_at_once, NULL, &err) != CRUMB_OK) fail_msg("%s", err.message);
    assert_int_equal(count_writes() - n_before, 20);
    crumb_tuning *t = open_database(false);
    assert_int_equal(count_all(t), 200);
    crumb_tuning_close(t);
}

/* What failed, and what a crash leaves, is as if it had not begun. */
static void what_is_not_written_to_the_end_is_not_there(void **state) {
    (void)state;
    const crumb_tuning_record r = record_of(64, 128, 1, "a", "", 0.5);
    crumb_tuning_record found_one;
    bool found;
    crumb_tuning *t = open_database(true), *other = open_database(true);
    assert_int_equal(crumb_tuning_begin(t, NULL), CRUMB_OK);
    put(t, r);
    assert_int_equal(crumb_tuning_find(t, &r.key, &found_one, &found, NULL), CRUMB_OK);
    assert_true(found);
    assert_int_equal(count_all(other), 0);
    assert_int_equal(crumb_tuning_end(t, CRUMB_ERR_DEVICE, NULL), CRUMB_ERR_DEVICE);
    assert_int_equal(crumb_tuning_find(t, &r.key, &found_one, &found, NULL), CRUMB_OK);
    assert_false(found);
    assert_int_equal(crumb_tuning_begin(t, NULL), CRUMB_OK); /* the failure left nothing open */
    put(t, r);
    crumb_tuning_close(t);
    assert_int_equal(count_all(other), 0);
    put(other, r);
    assert_int_equal(count_all(other), 1);
    crumb_tuning_close(other);
}

static void nothing_is_begun_without_a_file(void **state) {
    (void)state;
    crumb_error err = {0};
    crumb_tuning *t = open_database(false);
    assert_int_equal(crumb_tuning_begin(t, &err), CRUMB_ERR_IO);
    assert_non_null(strstr(err.message, "no database"));
    crumb_tuning_close(t);
}

static void knobs_are_read_by_name(void **state) {
    (void)state;
    assert_int_equal(crumb_tuning_knob("streams=2 near=2048 far=0", "near", 7), 2048);
    assert_int_equal(crumb_tuning_knob("streams=2 near=2048 far=0", "far", 7), 0);
    assert_int_equal(crumb_tuning_knob("streams=2 near=2048 far=0", "ear", 7), 7);
    assert_int_equal(crumb_tuning_knob("streams=", "streams", 7), 7);
    assert_int_equal(crumb_tuning_knob("streams=-1", "streams", 7), 7);
    assert_int_equal(crumb_tuning_knob("streams=99999999999", "streams", 7), 7);
    assert_int_equal(crumb_tuning_knob("", "streams", 7), 7);
}

int main(void) {
    if (!mkdtemp(folder)) return 1;
    snprintf(path, sizeof path, "%s/below/tuning.sqlite", folder);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(without_a_file_nothing_is_found_and_nothing_made, fresh),
        cmocka_unit_test_setup(the_best_of_the_nearest_shape_is_found, fresh),
        cmocka_unit_test_setup(what_is_not_confirmed_is_not_found, fresh),
        cmocka_unit_test(a_lead_within_the_noise_is_none),
        cmocka_unit_test_setup(a_figure_from_elsewhere_replaces_no_measurement, fresh),
        cmocka_unit_test_setup(a_measurement_replaces_the_one_before, fresh),
        cmocka_unit_test_setup(pruning_keeps_the_best_and_other_devices, fresh),
        cmocka_unit_test_setup(the_digest_changes_with_what_is_found, fresh),
        cmocka_unit_test_setup(damage_is_put_aside, fresh),
        cmocka_unit_test_setup(damage_that_many_find_is_put_aside_once, fresh),
        cmocka_unit_test_setup(a_newer_schema_is_left_alone, fresh),
        cmocka_unit_test_setup(an_older_database_loses_nothing, fresh),
        cmocka_unit_test_setup(a_database_without_a_version_keeps_what_it_has, fresh),
        cmocka_unit_test_setup(the_table_without_a_version_is_taken, fresh),
        cmocka_unit_test_setup(another_programs_table_of_that_name_is_left_alone, fresh),
        cmocka_unit_test_setup(writers_wait_for_each_other, fresh),
        cmocka_unit_test_setup(many_are_written_at_once, fresh),
        cmocka_unit_test_setup(what_is_not_written_to_the_end_is_not_there, fresh),
        cmocka_unit_test_setup(nothing_is_begun_without_a_file, fresh),
        cmocka_unit_test(knobs_are_read_by_name),
    };
    int status = cmocka_run_group_tests(tests, NULL, NULL);
    char command[300];
    snprintf(command, sizeof command, "rm -rf '%s'", folder);
    return system(command) == 0 ? status : 1;
}
