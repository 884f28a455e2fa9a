import java.util.List;
import java.util.Set;
import org.apache.kafka.common.config.ConfigDef;
import org.apache.kafka.common.requests.DescribeConfigsResponse.ConfigSource;
import org.apache.kafka.coordinator.group.GroupConfig;
import org.apache.kafka.server.config.AbstractKafkaConfig;
import org.apache.kafka.server.config.DynamicBrokerConfig;
import org.apache.kafka.server.config.QuotaConfig;
import org.apache.kafka.server.config.ServerTopicConfigSynonyms;
import org.apache.kafka.server.metrics.ClientMetricsConfigs;
import org.apache.kafka.storage.internals.log.LogConfig;

/** Prints what the jars on the class path know about settings, one line each, tab-separated. */
public class KafkaSettings {
    public static void main(String[] arguments) {
        printAll("topic", LogConfig.configKeys().values());
        printAll("broker", AbstractKafkaConfig.CONFIG_DEF.configKeys().values());
        printAll("broker", QuotaConfig.brokerQuotaConfigs().configKeys().values());
        printAll("group", GroupConfig.CONFIG_DEF.configKeys().values());
        printAll("client-metrics", ClientMetricsConfigs.configDef().configKeys().values());
        DynamicBrokerConfig.dynamicConfigUpdateModes().forEach((name, mode) -> print("mode", name, mode));
        DynamicBrokerConfig.DYNAMIC_SECURITY_CONFIGS.forEach(name -> print("per-listener", name));
        ServerTopicConfigSynonyms.ALL_TOPIC_CONFIG_SYNONYMS.forEach((topic, synonyms) -> synonyms.forEach(
            synonym -> print("synonym", topic, synonym.name(), synonym.converter().apply("1"))));
        GroupConfig.ALL_GROUP_CONFIG_SYNONYMS.forEach((group, broker) -> print("group-synonym", group, broker.orElse("")));
        for (ConfigSource source : ConfigSource.values()) {
            print("source", source.name(), String.valueOf(source.id()));
        }
    }

    private static void printAll(String scope, Iterable<ConfigDef.ConfigKey> keys) {
        for (ConfigDef.ConfigKey key : keys) {
            String value = key.defaultValue == null || key.defaultValue == ConfigDef.NO_DEFAULT_VALUE
                ? "(none)" : ConfigDef.convertToString(key.defaultValue, key.type);
            String internal = key.internalConfig ? "internal" : "";
            print(scope, key.name, key.type.toString(), value, String.valueOf(key.validator), emptiness(key), internal);
        }
    }

    /** Validators of lists and strings do not say in words whether nothing will do. */
    private static String emptiness(ConfigDef.ConfigKey key) {
        Object nothing = key.type == ConfigDef.Type.LIST ? List.of() : "";
        if (key.validator == null || !Set.of(ConfigDef.Type.LIST, ConfigDef.Type.STRING).contains(key.type)) {
            return "";
        }
        try {
            key.validator.ensureValid(key.name, nothing);
            return "may be empty";
        } catch (RuntimeException refused) {
            return "not empty";
        }
    }

    private static void print(String... cells) {
        System.out.println(String.join("\t", cells));
    }
}
