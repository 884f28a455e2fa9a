import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.Map;
import java.util.Optional;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.core.execution.JobClient;
import org.apache.flink.table.api.EnvironmentSettings;
import org.apache.flink.table.api.TableEnvironment;

/**
 * Flink SQL in this JVM. The arguments are settings, `name=value`; standard input has a statement a line.
 *
 * <p>Each gets a line of answer when it has ended: the milliseconds it took, and those that its job ran, if it has one.
 * The first line of all says that statements are awaited. A statement that fails ends the JVM with the reason on
 * standard error.
 */
public final class FlinkSql {
    private FlinkSql() {}

    public static void main(String[] arguments) throws Exception {
        Map<String, String> settings = new HashMap<>();
        for (String argument : arguments) {
            String[] setting = argument.split("=", 2);
            settings.put(setting[0], setting[1]);
        }
        TableEnvironment tables =
                TableEnvironment.create(
                        EnvironmentSettings.newInstance()
                                .inStreamingMode()
                                .withConfiguration(Configuration.fromMap(settings))
                                .build());
        BufferedReader statements =
                new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        System.out.println("ready");
        String statement;
        while ((statement = statements.readLine()) != null) {
            long started = System.nanoTime();
            Optional<JobClient> job = tables.executeSql(statement).getJobClient();
            long ran = job.isPresent() ? job.get().getJobExecutionResult().get().getNetRuntime() : 0;
            System.out.println((System.nanoTime() - started) / 1_000_000 + " " + ran);
        }
        System.exit(0);
    }
}
