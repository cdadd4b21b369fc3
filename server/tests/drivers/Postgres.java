// What JDBC sees: java -cp postgresql.jar Postgres.java jdbc:postgresql://127.0.0.1:PORT/weather, of the server of postgres.py.

import java.sql.*;
import java.time.OffsetDateTime;
import java.util.*;

public class Postgres {
    static void check(Object expected, Object found) {
        if (!expected.equals(found)) {
            throw new AssertionError("expected " + expected + ", found " + found);
        }
    }

    static List<String> strings(ResultSet rows, String column) throws SQLException {
        List<String> all = new ArrayList<>();
        while (rows.next()) {
            all.add(rows.getString(column));
        }
        return all;
    }

    public static void main(String[] arguments) throws Exception {
        try (Connection db = DriverManager.getConnection(arguments[0], "me", "")) {
            DatabaseMetaData about = db.getMetaData();
            check("PostgreSQL", about.getDatabaseProductName());
            check(List.of("w"), strings(about.getTables(null, "public", "%", new String[] {"TABLE"}), "TABLE_NAME"));
            check(List.of("t", "s", "temp", "n", "ok", "o"), strings(about.getColumns(null, "public", "w", "%"), "COLUMN_NAME"));
            check(List.of(), strings(about.getPrimaryKeys(null, "public", "w"), "COLUMN_NAME"));
            check(List.of(), strings(about.getImportedKeys(null, "public", "w"), "FKCOLUMN_NAME"));
            check(List.of(), strings(about.getIndexInfo(null, "public", "w", false, false), "COLUMN_NAME"));
            check(true, strings(about.getTypeInfo(), "TYPE_NAME").contains("timestamptz"));
            try (Statement some = db.createStatement()) {
                ResultSet row = some.executeQuery("SELECT 'Infinity'::float8, '-0'::float8");
                row.next();
                check(Double.POSITIVE_INFINITY, row.getDouble(1));
                check(-0.0, row.getDouble(2));
            }
            try (PreparedStatement insert = db.prepareStatement("INSERT INTO w (t, s, temp, n) VALUES (?, ?, ?, ?)")) {
                for (int at = 0; at < 3; at++) {
                    insert.setObject(1, OffsetDateTime.parse("2024-05-01T00:00:0" + at + "Z"));
                    insert.setString(2, "jdbc");
                    insert.setDouble(3, 4.5);
                    insert.setLong(4, at);
                    insert.addBatch();
                }
                check(3, Arrays.stream(insert.executeBatch()).sum());
            }
            // After some runs the driver prepares it by name, and asks for binary values.
            try (PreparedStatement query = db.prepareStatement("SELECT t, temp, n FROM w WHERE s = ? AND temp > ? ORDER BY t LIMIT ?")) {
                for (int run = 0; run < 8; run++) {
                    query.setString(1, "jdbc");
                    query.setDouble(2, 1.0);
                    query.setInt(3, 5);
                    ResultSet rows = query.executeQuery();
                    rows.next();
                    check(OffsetDateTime.parse("2024-05-01T00:00:00Z"), rows.getObject(1, OffsetDateTime.class));
                    check(4.5, rows.getDouble(2));
                    check(0L, rows.getLong(3));
                }
            }
            try (PreparedStatement delete = db.prepareStatement("DELETE FROM w WHERE s = ?")) {
                delete.setString(1, "jdbc");
                check(3, delete.executeUpdate());
            }
            db.setReadOnly(true);
            db.setAutoCommit(false);
            try (Statement some = db.createStatement()) {
                some.setFetchSize(100);
                check(1000, strings(some.executeQuery("SELECT value FROM generate_series(1, 1000)"), "value").size());
            }
            db.rollback();
            db.setReadOnly(false);
            db.setAutoCommit(true);
            try (Statement wrong = db.createStatement()) {
                wrong.executeQuery("SELECT nope FROM w");
                throw new AssertionError("nope was found");
            } catch (SQLException error) {
                check(true, error.getMessage().contains("there is no column 'nope'"));
            }
        }
        System.out.println("done");
    }
}
